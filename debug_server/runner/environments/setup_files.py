"""Reads the call of ``setup`` in a setup.py without running it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from debug_server.runner.environments.project_files import read_text

_UNPARSABLE = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupCall:
    """The arguments of the call of ``setup`` in a setup.py."""

    literals: dict[str, Any]  # those whose values are written down
    computed: frozenset[str]  # those that only running the file tells; ``**`` for a mapping


def read_setup_py(folder: Path) -> SetupCall | None:
    """The only call of ``setup`` in ``folder/setup.py``; None without one that can be read."""
    return _parse_setup_py(read_text(folder / "setup.py"))


@lru_cache(maxsize=32)
def _parse_setup_py(text: str) -> SetupCall | None:
    try:
        tree = ast.parse(text)
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_setup(node.func)]
        if len(calls) != 1:
            return None
        constants = dict(_constants(tree))
        return _arguments(calls[0], constants)
    except _UNPARSABLE:
        return None


def _arguments(call: ast.Call, constants: dict[str, Any]) -> SetupCall:
    literals: dict[str, Any] = {}
    computed = {"**"} if call.args else set()
    for keyword in call.keywords:
        if isinstance(keyword.value, ast.Name) and keyword.value.id in constants:
            literals[keyword.arg or "**"] = constants[keyword.value.id]
            continue
        try:
            literals[keyword.arg or "**"] = ast.literal_eval(keyword.value)
        except _UNPARSABLE:
            computed.add(keyword.arg or "**")
    merged = literals.pop("**", None)
    if isinstance(merged, dict):
        literals = {**merged, **literals}
    elif merged is not None:
        computed.add("**")
    return SetupCall(literals=literals, computed=frozenset(computed))


def _is_setup(function: ast.expr) -> bool:
    return (function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")) == "setup"


def _constants(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """Names that are set once to a literal, and used once: nothing can have changed their values in between."""
    seen = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if seen[name] == 2:
                try:
                    yield name, ast.literal_eval(node.value)
                except _UNPARSABLE:
                    continue
