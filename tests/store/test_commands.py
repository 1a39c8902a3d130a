"""A command's way from pending to its one terminal state."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, timedelta

import pytest

from debug_server.errors import ConflictError, InvalidInputError, NotFoundError, QueueFullError
from debug_server.model import ArtifactKind, Command, CommandStatus, ExitReason, ExitRecord, Limits, Session
from debug_server.ports import CommandStore
from debug_server.store import MetadataStore

from .conftest import Clock

DONE = ExitRecord(reason=ExitReason.EXITED, exit_code=0)
HANDLE = {"pid": 4711, "start_time": 99, "boot_id": "b"}


def started(store: MetadataStore, session: Session, **options: str) -> Command:
    command = store.commands.add(session_id=session.id, argv=["true"], claim_owner="engine", **options)  # type: ignore[arg-type]
    return store.commands.start(command.id, attempt=1, owner="engine", handle=HANDLE, log_path="/logs/1/a-1.log")


def kinds(store: MetadataStore) -> list[str]:
    return [event.kind for event in store.events.read() if event.kind.startswith("command.")]


def test_the_store_is_a_command_store(store: MetadataStore) -> None:
    """MetadataStore has the shape of the port (checked by the type checker) and answers through it."""
    port: CommandStore = store
    assert port.queue.depth() == 0


def test_what_was_asked_is_what_is_read(store: MetadataStore, session: Session, clock: Clock) -> None:
    """Every field of a command comes back as it was given, from the insert and from a later read."""
    argv = ["sh", "-c", "echo 'ü \udcff \n'"]
    limits = Limits(memory_bytes=1 << 30, wall_seconds=1.5)
    command = store.commands.add(
        session_id=session.id,
        argv=argv,
        cwd="src",
        env={"B": "2", "A": "1"},
        log_name="build",
        limits=limits,
        priority=7,
        queue_key="gpu",
        key_limit=3,
        tty=True,
        idempotency_key="k",
        metadata={"deep": [1, {"x": None}]},
    )
    assert store.commands.get(command.id) == command
    assert (command.sequence, command.argv, command.cwd) == (1, tuple(argv), "src")
    assert (command.env_names, command.log_name, command.limits) == (("A", "B"), "build", limits)
    assert (command.priority, command.queue_key, command.key_limit, command.tty) == (7, "gpu", 3, True)
    assert (command.idempotency_key, command.metadata) == ("k", {"deep": [1, {"x": None}]})
    assert (command.status, command.attempt, command.owner) == (CommandStatus.PENDING, 0, None)
    assert command.created_at == clock() and command.created_at.tzinfo is UTC
    assert command.exit is None and command.started_at is None and command.finished_at is None


def test_a_full_life(store: MetadataStore, session: Session, clock: Clock) -> None:
    """add, start, finish leave the exit columns, the log artifact, the handle and one event each, at their times."""
    command = store.commands.add(session_id=session.id, argv=["x"], claim_owner="engine")
    assert (command.attempt, command.owner) == (1, "engine")
    assert store.commands.handle(command.id) is None
    start_time = clock.move(1)
    store.commands.start(command.id, attempt=1, owner="engine", handle=HANDLE, log_path="/l/x-1.log")
    assert store.commands.handle(command.id) == HANDLE
    end_time = clock.move(2)
    record = ExitRecord(
        reason=ExitReason.OUT_OF_MEMORY,
        signal=9,
        message="killed",
        wall_seconds=2.0,
        limits={"memory_bytes": {"asked": 5, "by": "cgroup-v2"}},
        evidence={"oom_kill": 1},
    )
    ended = store.commands.finish(command.id, attempt=1, owner="engine", record=record, log_path="/l/x-1.log")
    assert ended == store.commands.get(command.id)
    assert (ended.status, ended.exit_code, ended.exit_reason) == (CommandStatus.FAILED, None, ExitReason.OUT_OF_MEMORY)
    assert ended.exit == record
    assert (ended.started_at, ended.finished_at) == (start_time, end_time)
    (log,) = store.artifacts.in_session(session.id)
    assert (log.kind, log.name, log.path, log.command_id) == (ArtifactKind.LOG, "x-1.log", "/l/x-1.log", command.id)
    assert kinds(store) == ["command.pending", "command.started", "command.finished"]
    last = store.events.read(command_id=command.id)[-1]
    assert last.data == {"status": "failed", "reason": "out_of_memory", "exit_code": None}


@pytest.mark.parametrize(("took", "ended_after"), [(5.0, 5), (0.0, 3600), (7200.0, 3600)])
def test_an_end_that_is_recorded_late(
    took: float, ended_after: int, store: MetadataStore, session: Session, clock: Clock
) -> None:
    """A command ended when its record says, unless that says nothing or the clock was set back meanwhile."""
    command = store.commands.add(session_id=session.id, argv=["x"], claim_owner="engine")
    store.commands.start(command.id, attempt=1, owner="engine", handle=HANDLE, log_path="/l/x-1.log")
    start_time = clock()
    clock.move(3600)
    record = ExitRecord(reason=ExitReason.NONZERO_EXIT, exit_code=1, wall_seconds=took)
    ended = store.commands.finish(command.id, attempt=1, owner="engine", record=record)
    assert ended.finished_at == start_time + timedelta(seconds=ended_after)
    assert ended.updated_at == clock()


def test_start_and_end_in_one_commit(store: MetadataStore, session: Session, clock: Clock) -> None:
    """With its handle a command that nobody saw running gets both, as if it had been seen; or neither."""
    command = store.commands.add(session_id=session.id, argv=["x"], claim_owner="engine")
    end_time = clock.move(2)
    record = ExitRecord(reason=ExitReason.EXITED, exit_code=0, wall_seconds=0.5)
    with pytest.raises(ConflictError, match="pending, attempt 1, owner 'engine'"):
        store.commands.finish(command.id, attempt=1, owner="thief", record=record, log_path="/l/x-1.log", handle=HANDLE)
    assert kinds(store) == ["command.pending"]
    store.commands.finish(command.id, attempt=1, owner="engine", record=record, log_path="/l/x-1.log", handle=HANDLE)
    ended = store.commands.get(command.id)
    assert (ended.status, ended.log_path, ended.exit) == (CommandStatus.SUCCEEDED, "/l/x-1.log", record)
    assert (ended.started_at, ended.finished_at) == (end_time - timedelta(seconds=0.5), end_time)
    assert store.commands.handle(command.id) == HANDLE
    assert kinds(store) == ["command.pending", "command.started", "command.finished"]


def test_exit_code_zero_is_kept(store: MetadataStore, session: Session) -> None:
    """An exit code of 0 is a fact and not an absent field."""
    command = started(store, session)
    store.commands.finish(command.id, attempt=1, owner="engine", record=DONE)
    assert store.commands.get(command.id).exit == DONE


@pytest.mark.parametrize("argv", [[], "ls -l", ["a\0b"], [1]])
def test_bad_argv_is_refused(store: MetadataStore, session: Session, argv: list[str]) -> None:
    """An empty argv, a bare string, NUL and non-strings are named and leave no row."""
    with pytest.raises(InvalidInputError, match="argv"):
        store.commands.add(session_id=session.id, argv=argv)
    assert store.commands.in_session(session.id) == []


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0"}])
def test_bad_environment_is_refused(store: MetadataStore, session: Session, env: dict[str, str]) -> None:
    """What no process can be given is refused before it is stored, without showing the value."""
    with pytest.raises(InvalidInputError, match="environment"):
        store.commands.add(session_id=session.id, argv=["x"], env=env)


def test_other_bad_input(store: MetadataStore, session: Session) -> None:
    """Names that leave the log directory, limits below one, unknown sessions and JSON-less metadata are refused."""
    with pytest.raises(InvalidInputError, match="log name"):
        store.commands.add(session_id=session.id, argv=["x"], log_name="../x")
    with pytest.raises(InvalidInputError, match="key_limit"):
        store.commands.add(session_id=session.id, argv=["x"], key_limit=0)
    with pytest.raises(InvalidInputError, match="metadata"):
        store.commands.add(session_id=session.id, argv=["x"], metadata={"x": object()})
    with pytest.raises(InvalidInputError, match="cwd"):
        store.commands.add(session_id=session.id, argv=["x"], cwd="a\0b")
    with pytest.raises(InvalidInputError):
        store.commands.add(session_id=session.id, argv=["x"], priority=1 << 70)
    with pytest.raises(NotFoundError, match="session 999"):
        store.commands.add(session_id=999, argv=["x"])
    with pytest.raises(NotFoundError, match="command 999"):
        store.commands.get(999)
    for call in (store.commands.handle, store.commands.inputs, store.commands.request_cancel):
        with pytest.raises(NotFoundError, match="command 999"):
            call(999)


def test_sequence_counts_within_the_session(store: MetadataStore) -> None:
    """Two sessions number their commands 1, 2, 3 each, also when many threads add at once."""
    sessions = [store.sessions.create().id for _ in range(2)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store.commands.add(session_id=sessions[n % 2], argv=["x"]), range(40)))
    for session_id in sessions:
        assert [command.sequence for command in store.commands.in_session(session_id)] == list(range(1, 21))


def test_the_same_key_adds_once(store: MetadataStore, session: Session) -> None:
    """Eight callers with one idempotency key get one row; another session may use the same key."""
    with ThreadPoolExecutor(8) as pool:
        ids = set(
            pool.map(
                lambda _: store.commands.add(session_id=session.id, argv=["x"], idempotency_key="k", max_pending=1).id,
                range(8),
            )
        )
    assert len(ids) == 1 and len(store.commands.in_session(session.id)) == 1
    assert kinds(store) == ["command.pending"]
    other = store.sessions.create()
    assert store.commands.add(session_id=other.id, argv=["x"], idempotency_key="k").id not in ids


def test_the_bound_holds(store: MetadataStore, session: Session) -> None:
    """With max_pending 5 exactly five of sixteen concurrent adds get in; born claimed ones do not count."""

    def add(_: int) -> bool:
        try:
            store.commands.add(session_id=session.id, argv=["x"], max_pending=5)
        except QueueFullError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(add, range(16))) == 5
    assert store.queue.depth() == 5
    store.commands.add(session_id=session.id, argv=["x"], max_pending=5, claim_owner="engine")
    assert store.queue.depth() == 5


def test_start_and_finish_need_the_claim(store: MetadataStore, session: Session) -> None:
    """Another attempt or owner, or a state that does not fit, changes nothing, and the error says what the row is."""
    command = store.commands.add(session_id=session.id, argv=["x"], claim_owner="engine")
    for attempt, owner in ((2, "engine"), (1, "thief")):
        with pytest.raises(ConflictError, match="pending, attempt 1, owner 'engine'"):
            store.commands.start(command.id, attempt=attempt, owner=owner, handle={}, log_path="/l")
    with pytest.raises(ConflictError, match="pending"):
        store.commands.finish(command.id, attempt=1, owner="engine", record=DONE)
    store.commands.start(command.id, attempt=1, owner="engine", handle={}, log_path="/l")
    with pytest.raises(ConflictError, match="running"):
        store.commands.start(command.id, attempt=1, owner="engine", handle={}, log_path="/l")
    for attempt, owner in ((2, "engine"), (1, "thief")):
        with pytest.raises(ConflictError, match="running, attempt 1"):
            store.commands.finish(command.id, attempt=attempt, owner=owner, record=DONE)
    store.commands.finish(command.id, attempt=1, owner="engine", record=DONE)
    with pytest.raises(ConflictError, match="succeeded"):
        store.commands.finish(command.id, attempt=1, owner="engine", record=DONE)
    with pytest.raises(NotFoundError):
        store.commands.finish(999, attempt=1, owner="engine", record=DONE)


def test_a_command_that_never_started_can_fail(store: MetadataStore, session: Session) -> None:
    """A claimed command ends from pending when its preparation fails, with its log."""
    command = store.commands.add(session_id=session.id, argv=["x"], claim_owner="engine")
    record = ExitRecord(reason=ExitReason.SPAWN_FAILED, message="no such program")
    ended = store.commands.finish(command.id, attempt=1, owner="engine", record=record, log_path="/l/a.log")
    assert ended.status is CommandStatus.FAILED and ended.log_path == "/l/a.log"
    assert len(store.artifacts.in_session(session.id, command_id=command.id, kind=ArtifactKind.LOG)) == 1


def test_fifty_finishers_one_end(store: MetadataStore, session: Session) -> None:
    """Of fifty concurrent finishers exactly one wins: one terminal state, one log artifact, one event."""
    command = started(store, session)
    reasons = [ExitReason.EXITED, ExitReason.CANCELLED, ExitReason.LOST]

    def finish(number: int) -> ExitReason | None:
        reason = reasons[number % 3]
        try:
            record = ExitRecord(reason=reason, message=str(number))
            store.commands.finish(command.id, attempt=1, owner="engine", record=record, log_path="/l/a.log")
        except ConflictError:
            return None
        return reason

    with ThreadPoolExecutor(25) as pool:
        winners = [reason for reason in pool.map(finish, range(50)) if reason]
    assert winners == [store.commands.get(command.id).exit_reason]
    assert len(store.artifacts.in_session(session.id)) == 1
    assert kinds(store).count("command.finished") == 1


def test_cancel_of_a_waiting_command_ends_it(store: MetadataStore, session: Session) -> None:
    """An unclaimed command ends as cancelled with its record and event and can no longer be claimed."""
    command = store.commands.add(session_id=session.id, argv=["x"])
    ended = store.commands.request_cancel(command.id)
    assert (ended.status, ended.exit_reason) == (CommandStatus.CANCELLED, ExitReason.CANCELLED)
    assert ended.exit is not None and ended.finished_at is not None
    assert kinds(store) == ["command.pending", "command.finished"]
    assert store.queue.claim_next("engine") is None
    assert store.commands.request_cancel(command.id) == ended


def test_cancel_of_a_claimed_command_marks_it(store: MetadataStore, session: Session) -> None:
    """A claimed command is marked once, its owner ends it, and a cancel after the end changes nothing."""
    command = started(store, session)
    assert store.commands.request_cancel(command.id).cancel_requested
    assert store.commands.request_cancel(command.id).status is CommandStatus.RUNNING
    record = ExitRecord(reason=ExitReason.CANCELLED)
    ended = store.commands.finish(command.id, attempt=1, owner="engine", record=record)
    assert store.commands.request_cancel(command.id) == ended
    expected = ["command.pending", "command.started", "command.cancel_requested", "command.finished"]
    assert kinds(store) == expected


def test_listing_by_status(store: MetadataStore, session: Session) -> None:
    """list_commands filters by status and keeps the order."""
    first, second, third = (store.commands.add(session_id=session.id, argv=[name]) for name in "abc")
    store.commands.request_cancel(second.id)
    pending = store.commands.in_session(session.id, status=CommandStatus.PENDING)
    assert [command.id for command in pending] == [first.id, third.id]
