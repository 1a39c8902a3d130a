"""runners.yml and repos.yml: what is refused, with the line; what is read anew; and what routes where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from debug_server.dispatch.configuration import LiveConfiguration, read_configuration
from debug_server.dispatch.globs import matches
from debug_server.dispatch.issue_event import MAX_PAYLOAD_BYTES, IssueEvent, checked
from debug_server.dispatch.registry import RepoRegistry
from debug_server.dispatch.repos_file import Repo
from debug_server.dispatch.routing import SKILLS, NoRoute, Route, routes
from debug_server.errors import ConfigurationError, ConflictError, InvalidInputError, NotFoundError
from debug_server.worktrees.repository_trust import Trust
from tests.dispatch.governing import SHIPPED

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
        (RUNNER + RUNNER.removeprefix("runners:\n").replace("  a:", "  b:"), 10, "claimed by a in line 5"),
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


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.md", "a.md", True),
        ("*.md", "b/a.md", False),
        ("kanban/**/*.md", "kanban/a.md", True),
        ("kanban/**/*.md", "kanban/b/c/a.md", True),
        ("kanban/*/TASK-*.md", "kanban/wip/TASK-1.md", True),
        ("kanban/*/TASK-*.md", "kanban/wip/x/TASK-1.md", False),
        ("Modelfile*", "Modelfile.big", True),
        (".gitignore", "agitignore", False),
        ("**", "a/b", True),
    ],
)
def test_globs(pattern: str, path: str, expected: bool) -> None:
    """A star stays within its folder, two cross them."""
    assert matches(pattern, path) is expected


def _routes(kind: str, repo: str = "kanban-pmo", **fields: object) -> list[Route | NoRoute]:
    event = IssueEvent(task_id="T", event_type=kind, repo_name=repo, **fields)  # type: ignore[arg-type]
    return routes(event, read_configuration(SHIPPED).runners)


def test_every_event_type_finds_its_runner() -> None:
    """The thirteen types of the table route to the runner that has the skill, and a skill names itself."""
    runners = read_configuration(SHIPPED).runners
    for kind, skill in SKILLS.items():
        runner = runners.runner_for(skill)
        assert runner is not None
        repo = (runner.repos or ("kanban-pmo",))[0]
        assert [item.skill for item in _routes(kind, repo)] == [skill] == [item.skill for item in _routes(skill, repo)]


def test_pushes_go_to_those_whose_paths_changed() -> None:
    """The most urgent first; a repository that a runner does not serve is left out; nobody is said to be nobody."""
    pushed = _routes("push", paths=("kanban/wip/TASK-1.md", "src/x.py"))
    assert [item.runner.name for item in pushed if isinstance(item, Route)] == ["security", "board", "docs"]
    assert [
        item.runner.name for item in _routes("push", "ollama-local", paths=("Modelfile",)) if isinstance(item, Route)
    ] == ["security", "model"]
    (nobody,) = _routes("created", "ollama-local")
    assert isinstance(nobody, NoRoute) and "does not serve" in nobody.reason
    (unknown,) = _routes("no.such.skill")
    assert isinstance(unknown, NoRoute) and unknown.runner == "unknown"
    (board,) = _routes("dispatch", field="board")
    assert isinstance(board, NoRoute) and "no trigger" in board.reason
    (infra,) = _routes("dispatch", field="git.lock")
    assert isinstance(infra, Route) and infra.skill == "git.lock"


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"event_type": ""}, "event_type"),
        ({"event_type": "  "}, "event_type"),
        ({"task_id": ""}, "task_id"),
        ({"task_id": "a\x00b"}, "control"),
        ({"task_id": "a\nb"}, "control"),
        ({"task_id": "x" * 500}, "longer"),
        ({"event_type": "runner.exited"}, "reserved"),
        ({"payload": "x" * (10 << 20)}, str(MAX_PAYLOAD_BYTES)),
        ({"timestamp": "yesterday"}, "ISO"),
        ({"paths": ("../etc/passwd",)}, "relative"),
        ({"paths": ("/etc/passwd",)}, "relative"),
        ({"paths": ("a\ud800",)}, "text"),
        ({"paths": ("x" * 5000,)}, "4096"),
        ({"paths": ("",)}, "1 to"),
        ({"paths": ("x",) * 100_001}, "100001 paths changed"),
        ({"event_type": "push", "payload": '{"paths": ["' + 'x", "' * 100_000 + 'x"]}'}, "100001 paths changed"),
    ],
)
def test_events_that_make_no_sense(fields: dict[str, object], word: str) -> None:
    """The message names the field."""
    good: dict[str, object] = {"task_id": "T", "event_type": "created", "repo_name": "here"}
    with pytest.raises(InvalidInputError, match=word):
        checked(IssueEvent(**{**good, **fields}))  # type: ignore[arg-type]


@pytest.mark.parametrize("there", ["there:\n    local_path: there\n    branch: *one\n", "there: *all\n"])
def test_an_alias_is_not_changed_for_everybody(tmp_path: Path, there: str) -> None:
    """A value that is written in another repository's entry is refused, not changed over there."""
    text = f"repos:\n  here: &all\n    local_path: here\n    branch: &one main\n  {there}"
    folder = _folder(tmp_path, repos=text)
    with pytest.raises(ConflictError, match="alias"):
        RepoRegistry(LiveConfiguration(folder)).update("there", {"branch": "next"})
    assert (folder / "repos.yml").read_text() == text


def test_a_payload_nested_too_deeply_has_no_paths() -> None:
    """What json gives up on is a payload like any other text."""
    event = IssueEvent(task_id="T", event_type="push", repo_name="here", payload="[" * 200_000)
    assert checked(event).paths == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_another_user_s_folder_is_not_registered(tmp_path: Path) -> None:
    """Adding or updating refuses at once what every use would refuse; the file stays as it was."""
    text = "repos:\n  here:\n    local_path: here\n"
    folder = _folder(tmp_path, repos=text)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    registry = RepoRegistry(LiveConfiguration(folder))
    with pytest.raises(InvalidInputError, match="trusted_repositories"):
        registry.add(Repo(name="theirs", local_path=str(theirs)))
    with pytest.raises(InvalidInputError, match="trusted_repositories"):
        registry.update("here", {"local_path": "theirs"})
    assert (folder / "repos.yml").read_text() == text
    RepoRegistry(LiveConfiguration(folder), Trust(listed=("65534",))).update("here", {"local_path": "theirs"})


def test_the_registry_keeps_what_people_wrote(tmp_path: Path) -> None:
    """Adding and updating leave comments and order; nonsense is refused and leaves the file as it was."""
    text = "# mine\nrepos:\n  here:  # first\n    local_path: here\n    status: active  # for now\n\n# the end\n"
    registry = RepoRegistry(LiveConfiguration(_folder(tmp_path, repos=text)))
    registry.update("here", {"status": "local-only", "role": "probe"})
    registry.add(Repo(name="there", local_path="there", branch="trunk"))
    written = (tmp_path / "config/repos.yml").read_text()
    assert [word in written for word in ("# mine", "# first", "# for now", "# the end")] == [True] * 4
    assert [repo.name for repo in registry.list_repos()] == ["here", "there"]
    assert [repo.local_path for repo in registry.list_repos()] == [str(tmp_path / "here"), str(tmp_path / "there")]
    registry.update("there", {"local_path": registry.get("there").local_path})
    assert (tmp_path / "config/repos.yml").read_text() == written, "an answer that comes back changes nothing"
    assert (registry.get("here").status, registry.get("here").role) == ("local-only", "probe")
    assert [repo.name for repo in registry.list_repos("local-only")] == ["here"]
    with pytest.raises(ConflictError, match="there"):
        registry.add(Repo(name="there", local_path="x"))
    for wrong in ({"colour": "red"}, {"local_path": "../x"}, {"role": "a\nb: c"}):
        with pytest.raises(InvalidInputError):
            registry.update("here", wrong)
    with pytest.raises(NotFoundError):
        registry.update("nowhere", {"role": "x"})
    assert (tmp_path / "config/repos.yml").read_text() == written
