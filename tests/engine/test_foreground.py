"""A run in the foreground: in the thread that calls, of its own session alone, beside whoever else works here."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from debug_server.engine import Sessions
from debug_server.engine.foreground import ForegroundEngine
from debug_server.errors import InvalidInputError
from debug_server.model import Command, CommandSpec, CommandStatus, ExitReason, Limits, SessionPlan, SessionStatus
from debug_server.store import MetadataStore
from tests.repositories import make_repository
from tests.running import Bench


@pytest.fixture
def engine(bench: Bench) -> ForegroundEngine:
    """Of a process that does nothing else."""
    sessions = Sessions.of(bench.store, bench.settings, process=lambda: bench.supervisor.owner)
    return ForegroundEngine(store=bench.store, supervisor=bench.supervisor, sessions=sessions)


def _waiting(store: MetadataStore, session_id: int, *argv: str, cwd: str | None = None) -> Command:
    return store.commands.add(session_id=session_id, argv=argv, cwd=cwd)


def _ran(engine: ForegroundEngine, bench: Bench, elsewhere: Path) -> list[tuple[int, CommandStatus, bool]]:
    """What ran in the bench's session: its number, how it ended, whether there was an error."""
    found = engine.run_waiting(bench.session, add=None, default_directory=elsewhere, observers=[])
    return [(row.id, row.status, error is not None) for row, error in found]


def test_it_claims_in_its_own_session_alone(bench: Bench, engine: ForegroundEngine, tmp_path: Path) -> None:
    """What waits in another session waits on; what waits in this one runs in its order."""
    other = bench.store.sessions.create(plan=SessionPlan(directory=str(bench.workspace)))
    strangers = _waiting(bench.store, other.id, "true")
    mine = [_waiting(bench.store, bench.session.id, name) for name in ("true", "false")]
    assert _ran(engine, bench, tmp_path) == [
        (mine[0].id, CommandStatus.SUCCEEDED, False),
        (mine[1].id, CommandStatus.FAILED, False),
    ]
    assert bench.store.commands.get(strangers.id).owner is None


def test_it_leaves_what_another_process_has_claimed(bench: Bench, engine: ForegroundEngine, tmp_path: Path) -> None:
    """A command of an owner that lives is neither taken over nor waited for, in its own session, too."""
    other = bench.new_supervisor()
    try:
        row = _waiting(bench.store, bench.session.id, "true")
        claimed = bench.store.queue.claim_next(other.owner)
        assert claimed is not None and claimed.id == row.id
        engine.recover()
        assert list(engine.follow_adopted(bench.session, [])) == []
        assert _ran(engine, bench, tmp_path) == []
        assert bench.store.commands.get(row.id).owner == other.owner
    finally:
        other.close()


def test_one_that_cannot_start_has_its_end(bench: Bench, engine: ForegroundEngine, tmp_path: Path) -> None:
    """Its error is told with its row, which says why; the next one runs."""
    wrong = _waiting(bench.store, bench.session.id, "true", cwd="../elsewhere")
    right = _waiting(bench.store, bench.session.id, "true")
    assert _ran(engine, bench, tmp_path) == [
        (wrong.id, CommandStatus.FAILED, True),
        (right.id, CommandStatus.SUCCEEDED, False),
    ]
    ended = bench.store.commands.get(wrong.id).exit
    assert ended is not None and "outside the workspace" in str(ended.message)


def test_a_request_that_is_refused_leaves_no_row(bench: Bench, engine: ForegroundEngine) -> None:
    """A limit that cannot be enforced is said before anything is written."""
    with pytest.raises(InvalidInputError, match="wings"):
        engine.check(CommandSpec(["true"], limits=Limits(), require=["wings"]), bench.workspace)
    assert bench.store.commands.in_session(bench.session.id) == []


def test_it_runs_in_the_calling_thread_and_ends_from_another(bench: Bench, engine: ForegroundEngine) -> None:
    """``cancel_all`` of a watcher ends the command; ``run`` returns with its end, and the session closes with it."""
    lease = Sessions.of(bench.store, bench.settings).prepare(bench.session)
    seen: list[str] = []

    def watch(chunk: object) -> None:
        seen.append(threading.current_thread().name)
        engine.cancel_all("seen enough")

    spec = CommandSpec(["sh", "-c", "echo begun; exec sleep 1000"])
    result = engine.run(bench.session, spec, lease, observers=[watch])
    assert result.exit.reason is ExitReason.CANCELLED and seen
    engine.close(bench.session)
    assert bench.store.sessions.get(bench.session.id).status is SessionStatus.CANCELLED


def test_a_session_with_an_unknown_end_stays_open(bench: Bench, engine: ForegroundEngine) -> None:
    """Whoever comes next settles its command, and closes it then."""
    _waiting(bench.store, bench.session.id, "true")
    engine.close(bench.session)
    assert bench.store.sessions.get(bench.session.id).is_open


def test_a_session_without_a_lease_gets_a_workspace(bench: Bench, engine: ForegroundEngine, tmp_path: Path) -> None:
    """A row with a repository and a commit, as a program adds it, runs in a workspace, not in the caller's folder."""
    remote = make_repository(tmp_path / "remote", {"of-the-commit": ""})
    repository = bench.store.create_repository("remote", str(remote))
    bench.session = bench.store.create_session(repository_id=repository.id, commit_sha="main")
    (tmp_path / "elsewhere").mkdir()
    row = _waiting(bench.store, bench.session.id, "ls")
    assert _ran(engine, bench, tmp_path / "elsewhere") == [(row.id, CommandStatus.SUCCEEDED, False)]
    assert bench.log(bench.store.commands.get(row.id))["stdout"] == b"of-the-commit\n"
    leased = bench.store.sessions.get(bench.session.id)
    assert leased.worktree_id is not None
    engine.close(leased)
