"""The figures for people (a table) and for programs (one JSON document)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.figures import FAILED, Figure, Result, Skipped

_VERDICTS = {True: "holds", False: "MISSED", None: ""}
_COLUMNS = "{:<46} {:>12} {:<7} {:>10}  {}"

HEADING = _COLUMNS.format("figure", "value", "unit", "bar", "verdict")


def rows(subject: str, results: Sequence[Result]) -> list[str]:
    """One subject's lines of the table, the facts below each figure."""
    lines = []
    for result in results:
        name = f"{subject}.{result.name}"
        if isinstance(result, Skipped):
            word = FAILED if result.name == FAILED else "skipped"
            lines.append(_COLUMNS.format(name, word, "", "", result.reason))
            continue
        bar = "" if result.bar is None else str(result.bar)
        lines.append(_COLUMNS.format(name, f"{result.value:.3f}", result.unit, bar, _VERDICTS[result.holds]).rstrip())
        if result.facts:
            lines.append("    " + "  ".join(f"{key}={_short(value)}" for key, value in result.facts.items()))
    return lines


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def document(machine: Mapping[str, Any], subjects: Mapping[str, Sequence[Result]]) -> str:
    """Everything as JSON."""
    figures = {subject: [_plain(result) for result in results] for subject, results in subjects.items()}
    return json.dumps({"machine": machine, "subjects": figures}, indent=2)


def _plain(result: Result) -> dict[str, Any]:
    if isinstance(result, Skipped):
        return {"name": result.name, "skipped": result.reason}
    return asdict(result) | {"bar": None if result.bar is None else str(result.bar), "holds": result.holds}


def verdict(subjects: Mapping[str, Sequence[Result]]) -> str:
    """One line about all of them."""
    figures = [result for results in subjects.values() for result in results if isinstance(result, Figure)]
    others = [result for results in subjects.values() for result in results if isinstance(result, Skipped)]
    failed = sum(result.name == FAILED for result in others)
    judged = [figure.holds for figure in figures if figure.holds is not None]
    return (
        f"{judged.count(True)} bars hold, {judged.count(False)} missed, {len(others) - failed} figures skipped, "
        f"{failed} subjects FAILED"
    )
