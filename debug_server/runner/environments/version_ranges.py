"""Ranges of Python versions as projects write them: ``>=3.8,<4``, ``^3.9``, ``~3.8 || 3.10.*``.

Not the library ``packaging``: it takes 20 ms to load, and the range is read before every run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_CLAUSE = re.compile(r"(===|==|!=|<=|>=|~=|<|>|\^|~|=)?\s*v?(\d+(?:\.\d+)*)(\.\*)?[\w.+-]*")
_ANY = ("", "*")
_Test = Callable[[tuple[int, ...]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRange:
    """Versions that fit one of the alternatives, each a list of conditions."""

    text: str
    alternatives: tuple[tuple[_Test, ...], ...]

    def __contains__(self, version: str) -> bool:
        numbers = numbers_of(version)
        return any(all(test(numbers) for test in tests) for tests in self.alternatives)


def parse_range(text: str) -> VersionRange | None:
    """The range that ``text`` means; None if it cannot be understood."""
    alternatives = []
    for part in re.split(r"\|\|?", text):
        clauses = [_clause(item.strip()) for item in re.split(r"[,\s]+(?=[<>=!~^\d*])", part.strip())]
        tests = [test for test in clauses if test is not None]
        if len(tests) < len(clauses):
            return None
        alternatives.append(tuple(tests))
    return VersionRange(text=text.strip(), alternatives=tuple(alternatives))


def numbers_of(version: str) -> tuple[int, ...]:
    """``3.11.7`` as numbers, for comparisons."""
    return tuple(int(part) for part in version.split("."))


def _clause(text: str) -> _Test | None:
    if text in _ANY:
        return lambda _: True
    match = _CLAUSE.fullmatch(text)
    if match is None:
        return None
    operator, wanted, any_patch = match[1] or "=", numbers_of(match[2]), match[3] is not None
    # Nobody has Python 3.8 alone: whoever writes ``==3.8`` means every 3.8.
    return _equal(wanted, operator) if any_patch or len(wanted) < 3 else _compared(wanted, operator)


def _equal(wanted: tuple[int, ...], operator: str) -> _Test:
    if operator in ("=", "==", "==="):
        return lambda found: found[: len(wanted)] == wanted
    if operator == "!=":
        return lambda found: found[: len(wanted)] != wanted
    return _compared(wanted, operator)


def _compared(wanted: tuple[int, ...], operator: str) -> _Test:
    whole = (*wanted, 0, 0)[:3]
    simple: dict[str, _Test] = {
        "<": lambda found: found < whole,
        "<=": lambda found: found <= whole,
        ">": lambda found: found > whole,
        ">=": lambda found: found >= whole,
        "!=": lambda found: found != whole,
    }
    if operator in simple:
        return simple[operator]
    if operator in ("=", "==", "==="):
        return lambda found: found == whole
    kept = {"^": 1, "~": min(len(wanted), 2), "~=": max(len(wanted) - 1, 1)}[operator]
    return lambda found: found >= whole and found[:kept] == wanted[:kept]
