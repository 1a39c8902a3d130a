"""Every question that the store answers about tables that grow, as calls whose cost is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import product

from debug_server.model import (
    ArtifactKind,
    CommandSearch,
    CommandSpec,
    CommandStatus,
    ExitReason,
    ExitRecord,
    QueuedRun,
    SessionPlan,
    SessionStatus,
)
from debug_server.store import MetadataStore
from tests.store.filled_store import Filling

Operation = Callable[[MetadataStore, Filling], object]
_NOW = datetime(2100, 1, 1, tzinfo=UTC)
_DONE = ExitRecord(reason=ExitReason.EXITED, exit_code=0, wall_seconds=0.1)
_PAGE = 5


def _searches() -> Mapping[str, Operation]:
    """A page of commands with each filter, in both orders."""
    found: dict[str, Operation] = {}
    wanted: tuple[tuple[CommandStatus, ...], ...] = ((), (CommandStatus.FAILED,), (CommandStatus.RUNNING,))
    for statuses, by, newest in product(wanted, ("", "repository", "session", "token"), (True, False)):

        def search(
            store: MetadataStore,
            at: Filling,
            statuses: tuple[CommandStatus, ...] = statuses,
            by: str = by,
            newest: bool = newest,
        ) -> object:
            return store.commands.find(
                CommandSearch(
                    statuses=statuses,
                    repository_id=at.repositories[1] if by == "repository" else None,
                    session_id=at.long_session if by == "session" else None,
                    owner_token_id=at.tokens[1] if by == "token" else None,
                    newest=newest,
                    limit=_PAGE,
                )
            )

        words = ["commands.find", *statuses, *([f"of a {by}"] if by else []), "newest first" if newest else "in order"]
        found[" ".join(words)] = search
    return found


def _session_pages() -> Mapping[str, Operation]:
    found: dict[str, Operation] = {}
    for status, by, newest in product((None, *SessionStatus), ("", "repository", "token"), (True, False)):

        def page(
            store: MetadataStore,
            at: Filling,
            status: SessionStatus | None = status,
            by: str = by,
            newest: bool = newest,
        ) -> object:
            return store.sessions.page(
                status=status,
                repository_id=at.repositories[1] if by == "repository" else None,
                owner_token_id=at.tokens[1] if by == "token" else None,
                newest=newest,
                limit=_PAGE,
            )

        words = ["sessions.page", status or "all", *([f"of a {by}"] if by else []), "newest" if newest else "in order"]
        found[" ".join(words)] = page
    return found


def _run_one(store: MetadataStore, at: Filling) -> object:
    """A command from its row to its end, with every event and artifact between."""
    key = str(store.events.last())
    command = store.commands.add(session_id=at.long_session, argv=["true"], idempotency_key=key, claim_owner="me")
    store.commands.start(command.id, attempt=1, owner="me", handle={}, log_path="/logs/1/x.log")
    store.commands.finish(command.id, attempt=1, owner="me", record=_DONE, log_path="/logs/1/x.log")
    return store.commands.by_key(at.long_session, key)


def _claim_and_requeue(store: MetadataStore, _: Filling) -> object:
    """The waiting task; the other waiting command is behind a running one."""
    command = store.queue.claim_next("other")
    assert command is not None and command.subject == "task:new"
    store.queue.take_over(command.id, attempt=command.attempt, owner="other", new_owner="me")
    return store.queue.requeue(command.id, attempt=command.attempt, owner="me")


def _claim_of_session(store: MetadataStore, at: Filling) -> object:
    return store.queue.claim_next("other", session_id=at.long_session)


def _open_and_close(store: MetadataStore, at: Filling) -> object:
    session = store.sessions.create(
        repository_id=at.repositories[0], owner_token_id=at.tokens[0], idempotency_key="again"
    )
    store.sessions.by_idempotency_key("again", owner_token_id=at.tokens[0], since=_NOW.replace(year=2000))
    store.sessions.touch([session.id])
    store.sessions.set_status(session.id, SessionStatus.CANCELLED)
    store.sessions.drop_secrets(session.id)
    return store.sessions.secrets(session.id)


def _queue_and_cancel(store: MetadataStore, at: Filling) -> object:
    run = QueuedRun(
        subject="dispatch",
        spec=CommandSpec(["true"]),
        session_plan=SessionPlan(directory="/"),
        owner_token_id=at.tokens[0],
        order_key="order",
        queue_key="runner",
        key_max_pending=100,
    )
    (command,) = store.runs.add([run], max_pending=100) or []
    return store.commands.request_cancel(command.id)  # type: ignore[union-attr]  # the one step is a run


def _run_at_once(store: MetadataStore, at: Filling) -> object:
    """A run that is claimed when it is added, because nothing waits before it in its queue."""
    run = QueuedRun(spec=CommandSpec(["true"]), session_plan=SessionPlan(scratch=True), owner_token_id=at.tokens[0])
    command = store.runs.add_one(run, max_pending=100, claim_owner="me")
    return store.commands.request_cancel(command.id)


def _keep_artifact(store: MetadataStore, at: Filling) -> object:
    for _ in range(2):  # the second updates the row of the first
        store.artifacts.add(
            session_id=at.long_session, command_id=4, kind=ArtifactKind.CUSTOM, name="report", path="/collected/report"
        )
    return store.artifacts.in_session(at.long_session, command_id=4)


def _repository(store: MetadataStore, at: Filling) -> object:
    """Registered, used by one workspace, which is removed; then discarded."""
    repository = store.repositories.create("new", "/new")
    workspace = store.worktrees.add(repository.id, "/new/1", "pool")
    store.worktrees.remove(workspace.id)
    return store.repositories.discard(repository.id)


def _remove_session(store: MetadataStore, at: Filling) -> object:
    """A closed session with its events, commands and artifacts."""
    old = 2
    assert not store.history.is_in_use(old)
    while store.history.remove_events(old):
        pass
    while commands := store.history.logs(old):
        store.history.remove_commands([number for number, _ in commands])
    store.history.remove_session(old)
    return old


OPERATIONS: Mapping[str, Operation] = {
    **_searches(),
    **_session_pages(),
    "a command, from its row to its end": _run_one,
    "a run is queued and cancelled": _queue_and_cancel,
    "a run is added": _run_at_once,
    "queue.claim_next, queue.take_over, queue.requeue": _claim_and_requeue,
    "queue.claim_next of a session": _claim_of_session,
    "queue.claimed": lambda store, _: store.queue.claimed(),
    "queue.depth": lambda store, _: store.queue.depth(),
    "commands.cancel_requested": lambda store, at: store.commands.cancel_requested(at.running),
    "commands.get": lambda store, at: store.commands.get(at.running),
    "commands.inputs, commands.handle": lambda store, at: (
        store.commands.inputs(at.running),
        store.commands.handle(at.running),
    ),
    "commands.newest_in_session": lambda store, at: store.commands.newest_in_session(at.long_session),
    "commands.in_session, a page of failed ones": lambda store, at: store.commands.in_session(
        at.long_session, status=CommandStatus.FAILED, limit=_PAGE
    ),
    "commands.unfinished": lambda store, at: store.commands.unfinished(at.long_session),
    "commands.awaited_by": lambda store, at: store.commands.awaited_by(at.waiting),
    "commands.newest_by_subject": lambda store, at: store.commands.newest_by_subject("task:new"),
    "commands.newest_by_subject of a token": lambda store, at: store.commands.newest_by_subject(
        "task:new", owner_token_id=at.tokens[0]
    ),
    "commands.by_subject_prefix": lambda store, _: store.commands.by_subject_prefix("task:", limit=_PAGE),
    "commands.by_subject_prefix of a token, newest first": lambda store, at: store.commands.by_subject_prefix(
        "task:", owner_token_id=at.tokens[0], newest=True, limit=_PAGE
    ),
    "commands.count_unfinished": lambda store, at: store.commands.count_unfinished(at.tokens[0]),
    "a session is opened and closed": _open_and_close,
    "sessions.get": lambda store, at: store.sessions.get(at.long_session),
    "sessions.expired": lambda store, _: store.sessions.expired(_NOW),
    "sessions.count_open": lambda store, at: store.sessions.count_open(at.tokens[0]),
    "sessions.count_with_workspace": lambda store, at: store.sessions.count_with_workspace(at.tokens[0]),
    "an artifact is kept": _keep_artifact,
    "artifacts.get": lambda store, _: store.artifacts.get(1),
    "artifacts.in_session, a page": lambda store, at: store.artifacts.in_session(
        at.long_session, newest=True, limit=_PAGE
    ),
    "events.append": lambda store, at: store.events.append("something", command_id=at.running),
    "events.read, a page": lambda store, _: store.events.read(0, _PAGE),
    "events.read of a session": lambda store, at: store.events.read(0, _PAGE, session_id=at.open_session),
    "events.read of a command": lambda store, at: store.events.read(0, _PAGE, command_id=at.running),
    "events.read of a subject": lambda store, _: store.events.read(0, _PAGE, subject="task:new"),
    "events.heads": lambda store, _: store.events.heads(0, _PAGE),
    "events.last": lambda store, _: store.events.last(),
    "a repository and its workspace are removed": _repository,
    "history.kept": lambda store, _: store.history.kept(),
    "history.oldest, a page": lambda store, _: store.history.oldest(),
    "history.oldest_of_newest": lambda store, _: store.history.oldest_of_newest(100),
    "history.oldest_of_newest of more than there are": lambda store, _: store.history.oldest_of_newest(10**9),
    "a session is removed": _remove_session,
}
