"""The table of limits, and everything that follows from it."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
import typer

from debug_server.config import LimitsConfig
from debug_server.errors import InvalidInputError
from debug_server.messages import LimitsRequest
from debug_server.model import LIMITS, Limits, parse_size
from debug_server.model.limits import Limit, size_text
from debug_server.runner.limits import REQUIRE_NAMES, Capabilities, enforcers
from debug_server.surfaces.cli import command, run_line
from tests.running import ROOT

LINES = {
    "run": typer.main.get_command(run_line.app),
    "command submit": typer.main.get_group(command.app).commands["submit"],
    "command run": typer.main.get_group(command.app).commands["run"],
}


def test_the_table_is_the_value_that_commands_carry() -> None:
    """Each row is a field, and each row is a setting, a field of requests and a name for --require."""
    assert list(LIMITS) == [item.name for item in fields(Limits)] == list(LimitsRequest.model_fields)
    assert [limit.setting for limit in LIMITS.values()] == [item.name for item in fields(LimitsConfig)]
    assert {limit.option: name for name, limit in LIMITS.items()} == REQUIRE_NAMES


@pytest.mark.parametrize("line", LINES)
def test_each_command_line_has_every_limit(line: str) -> None:
    """Each row is an option of every command line that runs a command."""
    options = {option for parameter in LINES[line].params for option in parameter.opts}
    assert {f"--{limit.option}" for limit in LIMITS.values()} <= options


def test_the_page_says_who_enforces_each_limit() -> None:
    """The table in docs/operations.md has the rows of this one, by option, setting and name in requests."""
    text = (ROOT / "docs/operations.md").read_text().partition("\n## Limits\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `--([a-z-]+)` \| `limits\.(\w+)` \| `(\w+)` \|", text, re.MULTILINE)
    assert rows == [(limit.option, limit.setting, limit.name) for limit in LIMITS.values()]


def test_each_limit_says_who_enforces_it() -> None:
    """A limit without a mechanism would count as enforced: each has one, also where there are no cgroups."""
    bare = Capabilities(mechanism="session", controllers=frozenset(), root=False)
    assert set(enforcers(bare).values()) <= {"rlimit", "affinity", "keeper"}
    assert list(enforcers(bare)) == [limit.option for limit in LIMITS.values()]


def outside(limit: Limit) -> list[object]:
    """Values that are no numbers, and numbers just outside of the range."""
    below = 0 if limit.minimum is None else limit.minimum - 1
    return [below, limit.maximum + 1, -1, True, float("nan"), float("inf"), "1"]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in LIMITS for value in outside(LIMITS[name])])
def test_no_limit_takes_what_cannot_be_in_force(name: str, value: object) -> None:
    """No number, too little or too much: the error names limit and value."""
    with pytest.raises(InvalidInputError, match=re.escape(f"limit {name}={value!r}")):
        Limits.from_json({name: value})


@pytest.mark.parametrize("count", [1, 1000, 1 << 10, 4 << 20, 1536 << 20, 1 << 40])
def test_a_size_is_read_as_it_is_shown(count: int) -> None:
    """The text of a size means the same number of bytes."""
    assert parse_size(size_text(count)) == count
