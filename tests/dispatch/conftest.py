"""Governors for the tests of dispatch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.dispatch.governor_process import GovernorProcess, make_repository, repos_text

ONE_RUNNER = """
runners:
  work:
    executor: bash
    cmd: work.sh
    skills: [work.do]
    repos: all
"""


@pytest.fixture
def governor(tmp_path: Path, nothing_left: None) -> Iterator[GovernorProcess]:
    """A folder without files; stopped at the end."""
    made = GovernorProcess(tmp_path / "governor")
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def working(governor: GovernorProcess, tmp_path: Path) -> Callable[..., GovernorProcess]:
    """A governor with one repository and one bash runner whose script is given; started."""

    def make(script: str, runners: str = ONE_RUNNER, **files: str) -> GovernorProcess:
        path = make_repository(tmp_path / "repo", {"work.sh": script, **files})
        governor.configure(runners, repos_text({"repo": path}))
        return governor.start()

    return make
