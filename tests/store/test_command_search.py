"""Commands are found over all sessions."""

from __future__ import annotations

from itertools import product

import pytest

from debug_server.errors import ConflictError, NotFoundError
from debug_server.model import CommandSearch, CommandStatus, ExitReason, ExitRecord, SessionPlan
from debug_server.store import MetadataStore

ENDS = {
    CommandStatus.SUCCEEDED: ExitReason.EXITED,
    CommandStatus.FAILED: ExitReason.NONZERO_EXIT,
    CommandStatus.CANCELLED: ExitReason.CANCELLED,
}


def add(store: MetadataStore, session_id: int, status: CommandStatus) -> int:
    """A command in this state; a pending one is claimed or not in turn."""
    command = store.commands.add(session_id=session_id, argv=["true"], claim_owner="me")
    if status is CommandStatus.PENDING:
        return command.id
    store.commands.start(command.id, attempt=1, owner="me", handle={}, log_path="/log")
    if status is not CommandStatus.RUNNING:
        record = ExitRecord(reason=ENDS[status], message="ended")
        store.commands.finish(command.id, attempt=1, owner="me", record=record)
    return command.id


def test_every_filter_finds_what_a_look_at_every_row_finds(store: MetadataStore) -> None:
    """Statuses, repository, session and owner in every combination, in both orders, page by page."""
    repositories = [store.repositories.create(name, f"/{name}").id for name in ("one", "two")]
    tokens = [store.tokens.create(name, ["admin"])[0].id for name in ("a", "b")]
    sessions = [
        store.sessions.create(repository_id=repository, owner_token_id=token).id
        for repository, token in product([None, *repositories], [None, *tokens])
    ]
    for _ in range(2):
        for number, status in product(sessions, CommandStatus):
            add(store, number, status)
        for number in sessions:
            store.commands.add(session_id=number, argv=["waits"])
    every = [row.command for row in store.commands.find(CommandSearch(newest=False, limit=10_000))]
    assert len(every) == 2 * len(sessions) * (len(CommandStatus) + 1)
    owners = {number: store.sessions.get(number) for number in sessions}
    several: list[tuple[CommandStatus, ...]] = [(), *((status,) for status in CommandStatus)]
    several += [(CommandStatus.PENDING, CommandStatus.RUNNING), (CommandStatus.FAILED, CommandStatus.SUCCEEDED)]
    for statuses, repository, owner, session_id in product(
        several, [None, repositories[0]], [None, tokens[1]], [None, sessions[-1]]
    ):
        expected = [
            row.id
            for row in every
            if (not statuses or row.status in statuses)
            and repository in (None, owners[row.session_id].repository_id)
            and owner in (None, owners[row.session_id].owner_token_id)
            and session_id in (None, row.session_id)
        ]
        for newest in (False, True):
            found: list[int] = []
            while page := store.commands.find(
                CommandSearch(
                    statuses=statuses,
                    repository_id=repository,
                    owner_token_id=owner,
                    session_id=session_id,
                    newest=newest,
                    after=found[-1] if found else 0,
                    limit=7,
                )
            ):
                found += [row.command.id for row in page]
            assert found == (expected[::-1] if newest else expected)


def test_a_found_command_names_where_it_runs(store: MetadataStore) -> None:
    """Its repository, or its directory, and who asked for it."""
    repository = store.repositories.create("project", "/project")
    for fields in (
        {"repository_id": repository.id, "requested_by": "me"},
        {"plan": SessionPlan(directory="/here")},
    ):
        add(store, store.sessions.create(**fields).id, CommandStatus.RUNNING)
    local, remote = store.commands.find(CommandSearch())
    assert (remote.repository, remote.directory, remote.requested_by) == ("project", None, "me")
    assert (local.repository, local.directory, local.requested_by) == (None, "/here", None)


def test_a_waiting_command_names_what_it_waits_for(store: MetadataStore) -> None:
    """The running command of its session; earlier commands of its order; nothing when a slot is all that is missing."""
    session = store.sessions.create()
    running = add(store, session.id, CommandStatus.RUNNING)
    behind = store.commands.add(session_id=session.id, argv=["true"]).id
    assert store.commands.awaited_by(behind) == [running]
    ordered = [
        store.commands.add(session_id=store.sessions.create().id, argv=["true"], order_key="line").id for _ in range(3)
    ]
    assert store.commands.awaited_by(ordered[2]) == ordered[:2]
    assert store.commands.awaited_by(ordered[0]) == []


def test_a_removed_repository_stays_in_the_history(store: MetadataStore) -> None:
    """It is refused while a session is open; its name is free after its files, and its commands still name it."""
    repository = store.repositories.create("project", "/project")
    session = store.sessions.create(repository_id=repository.id)
    command = add(store, session.id, CommandStatus.SUCCEEDED)
    with pytest.raises(ConflictError, match=rf"open sessions \({session.id}\)"):
        store.repositories.remove(repository.id)
    assert store.repositories.by_name("project") == repository
    store.sessions.set_status(session.id, session.status.COMPLETED)
    store.worktrees.add(repository.id, "/project/wt-1", "pool")
    store.repositories.remove(repository.id)
    with pytest.raises(NotFoundError):
        store.repositories.by_name("project")
    with pytest.raises(NotFoundError):
        store.repositories.remove(repository.id)
    assert store.repositories.page() == [] and store.worktrees.page(repository.id) == []
    (found,) = store.commands.find(CommandSearch())
    assert (found.command.id, found.repository) == (command, "project")
    assert [row.id for row in store.repositories.with_files()] == [repository.id]
    with pytest.raises(ConflictError, match="is being removed"):
        store.repositories.create("project", "/other")
    for _ in range(2):
        store.repositories.free_name(repository.id, "project")
    (found,) = store.commands.find(CommandSearch())
    assert (found.repository, store.repositories.with_files()) == (f"project (removed {repository.id})", [])
    with pytest.raises(ConflictError, match="register it again"):
        store.sessions.create(repository_id=repository.id)
    assert store.repositories.create("project", "/other").id != repository.id


def test_a_repository_with_a_leased_workspace_is_not_removed(store: MetadataStore) -> None:
    """The lease of a session that is being opened has no session yet; nothing is changed."""
    repository = store.repositories.create("project", "/project")
    row = store.worktrees.add(repository.id, "/project/wt-1", "pool")
    expires = store.repositories.get(repository.id).created_at.replace(year=2100)
    store.worktrees.lease(
        worktree_id=row.id, owner="me", lease_token="t", commit_sha="c", environment_hash=None, expires_at=expires
    )
    with pytest.raises(ConflictError, match="leased workspace"):
        store.repositories.remove(repository.id)
    assert store.repositories.by_name("project") == repository
    assert [item.id for item in store.worktrees.page(repository.id)] == [row.id]
