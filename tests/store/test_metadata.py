"""MetadataStore: its members share one database, and the names of the Python API lead to them."""

from __future__ import annotations

from debug_server.store import MetadataStore


def test_the_names_of_the_python_api(store: MetadataStore) -> None:
    """What callers of the Python API write does what the members do."""
    repository = store.repositories.create(name="r", remote_url="/somewhere", default_branch="main")
    assert store.repositories.by_name("r") == store.repositories.get(repository.id) == repository
    session = store.sessions.create(repository_id=repository.id)
    assert store.sessions.get(session.id) == session
    command = store.commands.add(session_id=session.id, argv=["true"])
    assert store.commands.in_session(session.id) == [command]


def test_members_announce_to_the_same_listeners(store: MetadataStore) -> None:
    """A listener hears of events that any member appends."""
    heard: list[str] = []
    remove = store.events.add_listener(lambda notice: heard.append(notice.kind))
    session = store.sessions.create()
    store.commands.add(session_id=session.id, argv=["true"])
    remove()
    store.events.append("later")
    assert heard == ["session.created", "command.pending"]


def test_no_member_is_a_base(store: MetadataStore) -> None:
    """The store is made of members: it inherits from nothing."""
    assert MetadataStore.__mro__ == (MetadataStore, object)
