"""Requests under a key, on each database."""

from __future__ import annotations

import threading

import pytest

from debug_server.errors import ConflictError, NotFoundError
from debug_server.model import CommandSpec, QueuedRun, RequestKey, SessionPlan
from debug_server.store import MetadataStore
from debug_server.store.keyed_requests import KEPT_SECONDS

from .conftest import Clock


def test_a_key_is_begun_once(store: MetadataStore) -> None:
    """The first begins; the next finds it, without a reply and then with it; another caller has its own."""
    first = store.requests.begin("token-1", "k", fingerprint="f", owner="a")
    assert (first.first, first.reply, first.owner) == (True, None, "a")
    again = store.requests.begin("token-1", "k", fingerprint="other", owner="b")
    assert (again.first, again.fingerprint, again.owner, again.created_at) == (False, "f", "a", first.created_at)
    assert store.requests.begin("token-2", "k", fingerprint="f", owner="b").first
    store.requests.answer("token-1", "k", owner="a", reply='{"token": "hush"}')
    assert store.requests.begin("token-1", "k", fingerprint="f", owner="b").reply == '{"token": "hush"}'


def request_key(key: str) -> RequestKey:
    """A request that is answered with the number of its command."""
    return RequestKey(caller="c", key=key, fingerprint="f", owner="a", reply=lambda command: f'{{"id": {command.id}}}')


def test_a_command_and_its_request_are_one_commit(store: MetadataStore) -> None:
    """The request is answered with the command; under a known key nothing is added."""
    session = store.sessions.create()
    request = request_key("k")
    assert not store.requests.is_known(request)
    command = store.commands.add(session_id=session.id, argv=["true"], request=request)
    assert store.requests.is_known(request)
    assert store.requests.begin("c", "k", fingerprint="f", owner="b").reply == f'{{"id": {command.id}}}'
    with pytest.raises(ConflictError, match="'k'"):
        store.commands.add(session_id=session.id, argv=["true"], request=request)
    assert store.commands.in_session(session.id) == [command]
    with pytest.raises(NotFoundError):
        store.commands.add(session_id=session.id + 1, argv=["true"], request=request_key("other"))
    assert not store.requests.is_known(request_key("other"))


def test_a_run_and_its_request_are_one_commit(store: MetadataStore) -> None:
    """The same for a command in a session of its own; the command is claimed if it can start."""
    run = QueuedRun(spec=CommandSpec(["true"]), session_plan=SessionPlan(scratch=True), request=request_key("k"))
    command = store.runs.add_one(run, claim_owner="here")
    assert command.owner == "here"
    assert store.requests.begin("c", "k", fingerprint="f", owner="b").reply == f'{{"id": {command.id}}}'
    with pytest.raises(ConflictError, match="'k'"):
        store.runs.add([run])
    assert len(store.sessions.page()) == 1


def test_replies_are_sealed(store: MetadataStore) -> None:
    """A reply may hold a secret: the row does not show it."""
    store.requests.begin("c", "k", fingerprint="f", owner="a")
    store.requests.answer("c", "k", owner="a", reply='{"token": "hush"}')
    with store._database.read() as reader:
        row = reader.one("SELECT reply FROM keyed_requests")
    assert row is not None and b"hush" not in bytes(row[0])


def test_only_its_owner_ends_it(store: MetadataStore) -> None:
    """A request is answered, dropped or taken over only from the owner that it has, and not after its reply."""
    store.requests.begin("c", "k", fingerprint="f", owner="a")
    store.requests.drop("c", "k", owner="b")
    store.requests.answer("c", "k", owner="b", reply="{}")
    assert not store.requests.take_over("c", "k", owner="b", new_owner="c")
    assert store.requests.take_over("c", "k", owner="a", new_owner="b")
    assert not store.requests.take_over("c", "k", owner="a", new_owner="c")
    assert store.requests.begin("c", "k", fingerprint="f", owner="x").reply is None
    store.requests.answer("c", "k", owner="b", reply="{}")
    assert not store.requests.take_over("c", "k", owner="b", new_owner="c")
    store.requests.drop("c", "k", owner="b")
    assert store.requests.begin("c", "k", fingerprint="f", owner="x").reply == "{}"


def test_a_dropped_request_begins_anew(store: MetadataStore) -> None:
    """A failure leaves no trace."""
    store.requests.begin("c", "k", fingerprint="f", owner="a")
    store.requests.drop("c", "k", owner="a")
    assert store.requests.begin("c", "k", fingerprint="g", owner="a").first


def test_yesterday_is_forgotten(store: MetadataStore, clock: Clock) -> None:
    """A key can be used again a day later."""
    store.requests.begin("c", "k", fingerprint="f", owner="a")
    clock.move(KEPT_SECONDS - 1)
    assert not store.requests.begin("c", "k", fingerprint="f", owner="a").first
    clock.move(2)
    assert store.requests.begin("c", "k", fingerprint="g", owner="a").first


def test_many_old_requests_are_forgotten_a_page_at_a_time(store: MetadataStore, clock: Clock) -> None:
    """A key that is not in the first page can be used again as well."""
    for number in range(250):
        store.requests.begin("c", str(number), fingerprint="f", owner="a")
        clock.move(0.001)
    clock.move(KEPT_SECONDS + 1)

    def left() -> list[int]:
        return [number for number in range(250) if store.requests.is_known(request_key(str(number)))]

    assert store.requests.begin("c", "249", fingerprint="g", owner="a").first
    assert left() == list(range(100, 250))
    for key in ("x", "y"):
        store.requests.begin("c", key, fingerprint="f", owner="a")
    assert left() == [249]


def test_one_of_many_begins(store: MetadataStore) -> None:
    """Of eight threads that begin the same key at once exactly one is the first."""
    found: list[bool] = []
    barrier = threading.Barrier(8)

    def begin(number: int) -> None:
        barrier.wait()
        found.append(store.requests.begin("c", "k", fingerprint="f", owner=str(number)).first)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [False] * 7 + [True]


def test_what_a_token_has_in_use(store: MetadataStore) -> None:
    """Open sessions and unfinished commands are counted for their token alone."""
    token = store.tokens.create("t", ["admin"])[0]
    session = store.sessions.create(owner_token_id=token.id)
    store.sessions.create()
    assert store.sessions.count_open(token.id) == 1
    command = store.commands.add(session_id=session.id, argv=["x"])
    assert store.commands.count_unfinished(token.id) == 1
    store.commands.request_cancel(command.id)
    assert (store.commands.count_unfinished(token.id), store.commands.count_unfinished(token.id + 1)) == (0, 0)
