"""runners.yml and repos.yml: errors name the line; changes are reread, invalid ones are not used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from debug_server.dispatch.configuration import LiveConfiguration, read_configuration
from debug_server.dispatch.repos_file import Repo
from debug_server.errors import ConfigurationError
from tests.dispatch.governor_process import SHIPPED

RUNNER = "runners:\n  a:\n    executor: bash\n    cmd: a.sh\n    skills: [one]\n    repos: all\n"
REPOS = "repos:\n  here:\n    local_path: here\n"


def _folder(tmp_path: Path, runners: str = RUNNER, repos: str = REPOS) -> Path:
    folder = tmp_path / "config"
    folder.mkdir(exist_ok=True)
    (folder / "runners.yml").write_text(runners)
    (folder / "repos.yml").write_text(repos)
    return folder


def test_the_shipped_files_are_valid() -> None:
    """Eight runners, relative paths, sixty seconds unless said otherwise."""
    found = read_configuration(SHIPPED)
    names = {"board", "model", "infra", "verify", "security", "docs", "governance", "probe"}
    assert set(found.runners.runners) == names
    assert found.runners.runners["board"].timeout == 60.0
    assert found.runners.runners["security"].scan_patterns == ("sk-or-", "ghp_", "AIza")
    assert not any(Path(repo.local_path).is_absolute() for repo in found.repos.repos.values())


@pytest.mark.parametrize(
    ("runners", "line", "word"),
    [
        (RUNNER + "    colour: red\n", 7, "colour"),
        (RUNNER + "    cmd: b.sh\n", 7, "twice"),
        (RUNNER + RUNNER.removeprefix("runners:\n"), 7, "twice"),
        (RUNNER.replace("bash", "perl"), 3, "perl"),
        (RUNNER + RUNNER.removeprefix("runners:\n").replace("  a:", "  b:"), 10, "belongs to a (line 5)"),
        (RUNNER.replace("all", "[gone]"), 6, "gone"),
        (RUNNER.replace("a.sh", "../a.sh"), 4, "'..'"),
        (RUNNER.replace("a.sh", "/bin/sh"), 4, "relative"),
        (RUNNER.replace("a.sh", '"  "'), 4, "no program"),
        (RUNNER.replace("a.sh", "a.sh 'x"), 4, "split"),
        (RUNNER + "    timeout: soon\n", 7, "number"),
        (RUNNER + "    concurrency: 1.5\n", 7, "whole number, not 1.5"),
        (RUNNER + "  b:\n", 7, "mapping"),
        (RUNNER.replace("[one]", '["a\\u0007"]'), 5, "control character"),
        (RUNNER.replace("one", "x" * 81), 5, "longer than 80"),
        (RUNNER.replace("bash", "grpc").replace("cmd: a.sh", "target: a:65536\n    rpc: A.B"), 4, "1 to 65535"),
        (RUNNER + '    timeout: !!int "[1"\n', 7, "number"),
        (
            RUNNER.replace("[one]", "[]") + "    triggers:\n      - {type: schedule, cron: Mon 08:00}\n",
            8,
            "without skills",
        ),
        (RUNNER + "    triggers:\n      - type: schedule\n        cron: Mon 99:00\n", 8, "99"),
        (RUNNER + "    triggers:\n      - type: often\n", 8, "often"),
        (RUNNER + "    module: x\n", 7, "module"),
        ("runners: [1]\n", 1, "mapping"),
        ("runners:\n  a: {\n", 3, "not YAML"),
        ("", 1, "empty"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, runners: str, line: int, word: str) -> None:
    """Unknown and double keys, unknown executors, skills claimed twice, unknown repositories, broken YAML."""
    with pytest.raises(ConfigurationError) as caught:
        read_configuration(_folder(tmp_path, runners))
    assert f"runners.yml:{line}: " in str(caught.value)
    assert word in str(caught.value)


@pytest.mark.parametrize(
    ("repos", "word"),
    [
        (REPOS + "    colour: red\n", "repos.yml:4: "),
        (REPOS.replace("here:", "../here:"), "repos.yml:2: "),
        (REPOS.replace("local_path: here", "local_path: ../../etc"), "'..'"),
        (REPOS.replace("local_path: here", "branch: main"), "local_path"),
        (REPOS.replace("local_path: here", "local_path: null"), "local_path"),
        (REPOS + "  there:\n", "repos.yml:4: "),
    ],
)
def test_repositories_are_checked_too(tmp_path: Path, repos: str, word: str) -> None:
    """Unknown keys, names and paths that lead out."""
    with pytest.raises(ConfigurationError) as caught:
        read_configuration(_folder(tmp_path, repos=repos))
    assert word in str(caught.value)


def test_what_is_left_empty_is_not_given(tmp_path: Path) -> None:
    """A key without a value, or with null, is as good as none: it is not the text `null`."""
    repos = REPOS + "    remote_url: null\n    branch:\n    env_stage: ~\n"
    found = read_configuration(_folder(tmp_path, RUNNER + "    timeout:\n    triggers:\n    priority: null\n", repos))
    assert found.repos.repos["here"] == Repo(name="here", local_path="here")
    assert (found.runners.runners["a"].timeout, found.runners.runners["a"].priority) == (60.0, "med")


def test_a_change_is_taken_up_and_an_invalid_one_is_not(tmp_path: Path) -> None:
    """The next look sees a valid change; an invalid file keeps the old one in force and says why."""
    folder = _folder(tmp_path)
    live = LiveConfiguration(folder)
    _folder(tmp_path, RUNNER.replace("one", "two"))
    assert live.current().runners.runner_for("two") is not None
    _folder(tmp_path, RUNNER.replace("bash", "perl"))
    assert live.current().runners.runner_for("two") is not None
    assert live.problem is not None and "runners.yml:3" in live.problem
    _folder(tmp_path, RUNNER)
    assert live.current().runners.runner_for("one") is not None and live.problem is None


def test_a_change_that_keeps_size_and_time_is_taken_up(tmp_path: Path) -> None:
    """Two edits within one tick of the clock: the second is seen, too."""
    path = _folder(tmp_path) / "runners.yml"
    live, before = LiveConfiguration(path.parent), path.stat()
    path.write_text(RUNNER.replace("one", "two"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert live.current().runners.runner_for("two") is not None
