"""Which runners an event is routed to."""

from __future__ import annotations

from debug_server.dispatch.configuration import read_configuration
from debug_server.dispatch.issue_event import IssueEvent
from debug_server.dispatch.routing import SKILLS, NoRoute, Route, routes
from tests.dispatch.governor_process import SHIPPED


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
