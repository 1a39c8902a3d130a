"""Databases of schema version 7: what steered the engine from ``metadata`` is found in the plans, and goes back."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from debug_server.model import BranchWorktreePlan, Cleanup, CommandPlan, EnvironmentPlan, SessionPlan, WorkerIdentity
from debug_server.store import open_store
from debug_server.store.metadata import open_database
from debug_server.store.migrations import migrate

OLD = Path(__file__).with_name("fixtures") / "schema-7.sql"
TREE = BranchWorktreePlan(repository="/srv/project", path="/srv/tree", branch="task/T-2", cleanup=True)
SESSIONS = {
    1: SessionPlan(
        process="owner-1", environment=EnvironmentPlan(manifests=("requirements.txt",), python="3.11", groups=("dev",))
    ),
    2: SessionPlan(directory="/srv/plain"),
    3: SessionPlan(directory="/srv"),
    4: SessionPlan(scratch=True, after=("docker", "rm", "-f", "x")),
    5: SessionPlan(branch_tree=TREE),
    6: SessionPlan(commit="HEAD"),
}
COMMANDS = {
    1: CommandPlan(closes_session=True, artifacts=("report.xml",), require=("memory",), stdin=True),
    2: CommandPlan(inline=True),
    3: CommandPlan(
        inline=True,
        worker=WorkerIdentity(name="codex", instance=0, fingerprint="f"),
        relay=True,
        orphan_seconds=30.0,
        stdin=True,
    ),
    4: CommandPlan(closes_session=True, containers=True, pre_kill=("docker", "kill", "x")),
    5: CommandPlan(closes_session=True),
    6: CommandPlan(closes_session=True, wrapper=("nice",)),
}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "m.db"
    with sqlite3.connect(path) as database:
        database.executescript(OLD.read_text())
    return path


def _metadata(path: Path) -> list[tuple[str, int, str]]:
    with sqlite3.connect(path) as database:
        return [
            (table, *row)
            for table in ("sessions", "commands")
            for row in database.execute(f"SELECT id, metadata FROM {table} ORDER BY id")
        ]


def test_what_steered_is_in_the_plans(old: Path) -> None:
    """Every kind of session and command that the old program wrote is what it was; metadata has what is left."""
    with open_store(old) as store:
        sessions = store.sessions.page()
        assert {row.id: row.plan for row in sessions} == SESSIONS
        assert {row.id: store.commands.get(row.id).plan for row in sessions} == COMMANDS
        first, fifth = sessions[0], sessions[4]
        assert (first.lease_generation, first.idempotency_key) == (1, "k1")
        assert fifth.cleanup == Cleanup(succeeded=False, message="in use")
        assert [row.metadata for row in sessions] == [
            {"scratch": "mine", "ticket": 7},
            {},
            {"worker": "codex", "instance": 0},
            {"task": {"task_id": "T-1", "mode": "mounted-project"}},
            {"task": {"task_id": "T-2"}},
            {},
        ]
        assert store.commands.get(6).metadata == {"dispatch": {"runner": "board"}}


def test_back_and_forth(old: Path) -> None:
    """Brought up, back and up again, nothing is lost; what the caller named like a fact stays the caller's."""
    before = _metadata(old)
    open_store(old).close()
    database = open_database(str(old))
    migrate(database, 7)
    database.close()
    after = {(table, number): text for table, number, text in _metadata(old)}
    assert set(after) == {(table, number) for table, number, _ in before}
    with open_store(old) as store:
        sessions = store.sessions.page()
        assert {row.id: row.plan for row in sessions} == SESSIONS
        assert {row.id: store.commands.get(row.id).plan for row in sessions} == COMMANDS
        assert sessions[0].metadata == {"scratch": "mine", "ticket": 7}
        assert sessions[4].cleanup == Cleanup(succeeded=False, message="in use")
