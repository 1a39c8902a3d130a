"""Callbacks: what is told, to whom, in which order, and until when."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
import socket
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import pytest

from debug_server.errors import InvalidInputError
from debug_server.tasks import callbacks
from debug_server.tasks.targets import Targets
from tests.other_users import NOBODY, taken
from tests.running import eventually, lasting_port
from tests.tasks.task_server import Receiver, TaskServer

MakeServer = Callable[..., TaskServer]
BODY = {
    *("status", "message", "started_at", "finished_at", "exit_code", "stdout", "stderr", "container_id"),
    *("worktree_cleanup_attempted", "worktree_cleanup_succeeded", "worktree_cleanup_message"),
}
ALLOWED = {"callback_allow": "127.0.0.1"}


def test_running_and_the_end_are_told(make_server: MakeServer, receiver: Receiver) -> None:
    """Two callbacks in order, with the token, a signature over the body, and every field of the contract."""
    server = make_server(**ALLOWED)
    server.run("t", status_callback_url=f"{receiver.url}/cb?x=1", status_callback_token="s3cret")
    eventually(lambda: len(receiver.seen) == 2, what="two callbacks")
    assert receiver.statuses("/cb?x=1") == ["running", "success"]
    for (_, headers, body), raw in zip(receiver.seen, receiver.raw, strict=True):
        assert headers["X-Runner-Token"] == "s3cret" and set(body) >= BODY
        signed = hmac.new(b"s3cret", headers["X-Runner-Timestamp"].encode() + b"." + raw, hashlib.sha256).hexdigest()
        assert headers["X-Runner-Signature"] == f"sha256={signed}"
    assert receiver.seen[1][2]["stdout"] == "hello" and receiver.seen[1][2]["exit_code"] == 0
    assert receiver.seen[0][2]["finished_at"] is None and receiver.seen[0][2]["started_at"]


def test_a_canceled_task_is_told(make_server: MakeServer, receiver: Receiver) -> None:
    """A queued one has its end alone; a running one both."""
    server = make_server(executor="shell", cmd_template="sleep 1000", max_concurrency=1, **ALLOWED)
    for name in ("a", "b"):
        server.submitted(name, status_callback_url=f"{receiver.url}/{name}")
    server.running("a")
    server.cancel("b")
    server.cancel("a")
    eventually(lambda: len(receiver.seen) == 3, what="three callbacks")
    assert receiver.statuses("/a") == ["running", "canceled"] and receiver.statuses("/b") == ["canceled"]


def test_a_receiver_that_is_away_is_tried_again(make_server: MakeServer, receiver: Receiver) -> None:
    """Errors are retried in order: the end is not told before the start; a token survives until the last."""
    receiver.answers = [500, 503]
    server = make_server(**ALLOWED)
    server.run("t", status_callback_url=f"{receiver.url}/cb", status_callback_token="tok")
    eventually(lambda: len(receiver.seen) == 2, what="two callbacks")
    assert receiver.statuses("/cb") == ["running", "success"]
    assert {headers["X-Runner-Token"] for _, headers, _ in receiver.seen} == {"tok"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_who_has_the_port(make_server: MakeServer, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is sent to him, the log says what to do, and the receiver gets it all once it is back."""
    server = make_server(**ALLOWED)
    with taken("127.0.0.1", lasting_port()) as thief:
        url = f"http://127.0.0.1:{thief.port}"
        server.run("t", status_callback_url=f"{url}/cb", status_callback_token="tok")
        told = f"{url} is served by user .*HOST_RUNNER_CALLBACK_UID={NOBODY}"
        eventually(lambda: [row for row in _postponed(caplog) if re.search(told, row)], what="a refusal")
        assert not thief.heard()
    receiver = Receiver(thief.port)
    try:
        eventually(lambda: receiver.statuses("/cb") == ["running", "success"], what="two callbacks")
        assert {headers["X-Runner-Token"] for _, headers, _ in receiver.seen} == {"tok"}
    finally:
        receiver.close()


def _postponed(caplog: pytest.LogCaptureFixture, level: str = "WARNING") -> list[str]:
    return [
        str(vars(row)["error"])
        for row in caplog.records
        if (row.levelname, row.message) == (level, "callback_postponed")
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_receiver_s_user_can_be_named(make_server: MakeServer, caplog: pytest.LogCaptureFixture) -> None:
    """By HOST_RUNNER_CALLBACK_UID."""
    caplog.set_level("INFO", "debug_server.tasks.callbacks")
    server = make_server(**ALLOWED, callback_uid=NOBODY)
    with taken("127.0.0.1") as receiver:
        url = f"http://127.0.0.1:{receiver.port}/cb"
        server.run("t", status_callback_url=url, status_callback_token="tok")
        eventually(lambda: "the receiver answered 401" in _postponed(caplog, "INFO"), what="the receiver's answer")
        assert "x-runner-token: tok" in receiver.heard().lower()


def test_the_token_is_never_in_the_clear(make_server: MakeServer, receiver: Receiver) -> None:
    """Not in the database while it is needed, and gone from it afterwards; nor in any log or file of ours."""
    secret = "tok-3f9c-very-secret"
    receiver.answers = [500]
    server = make_server(**ALLOWED)
    server.run("t", status_callback_url=f"{receiver.url}/cb", status_callback_token=secret)
    eventually(lambda: len(receiver.seen) == 2, what="two callbacks")
    database = server.root / "data" / "metadata.db"

    def sealed() -> int:
        with sqlite3.connect(database) as rows:
            return int(rows.execute("SELECT COUNT(*) FROM sessions WHERE sealed_secrets IS NOT NULL").fetchone()[0])

    eventually(lambda: sealed() == 0, what="the secret's removal")
    for folder, _, names in os.walk(server.root):
        for path in (Path(folder, name) for name in names):
            with suppress(FileNotFoundError):  # of a keeper that leaves
                assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_a_refusing_receiver_is_given_up(make_server: MakeServer, receiver: Receiver) -> None:
    """A receiver that says no three times is left alone, and the next message goes out."""
    receiver.answers = [404] * 3
    server = make_server(**ALLOWED)
    server.run("t", status_callback_url=f"{receiver.url}/cb")
    eventually(lambda: receiver.statuses("/cb") == ["success"], what="the second message")


def test_a_message_that_cannot_be_sent_waits_like_any_other(
    make_server: MakeServer, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong, the next attempt comes after a pause: no busy loop, and nothing lost."""
    attempts: list[str] = []

    def fail_twice(token: str, body: bytes) -> dict[str, str]:
        attempts.append(token)
        if len(attempts) <= 2:
            raise UnicodeError("a defect of ours")
        return {}

    monkeypatch.setattr(callbacks, "signed", fail_twice)
    server = make_server(**ALLOWED)
    server.run("t", status_callback_url=f"{receiver.url}/cb", status_callback_token="tok")
    eventually(lambda: receiver.statuses("/cb") == ["running", "success"], what="two callbacks")
    assert len(attempts) == 4


@pytest.mark.parametrize(
    ("allowed", "host", "address", "ok"),
    [
        (None, "example.org", "93.184.216.34", True),
        (None, "orchestrator", "172.17.0.2", True),
        (None, "rebound.example", "127.0.0.1", False),
        (None, "rebound.example", "169.254.169.254", False),
        (None, "rebound.example", "::1", False),
        (None, "rebound.example", "::ffff:127.0.0.1", False),
        (None, "rebound.example", "64:ff9b::7f00:1", False),
        (None, "rebound.example", "fd00:ec2::254", False),
        (None, "rebound.example", "224.0.0.1", False),
        ("10.0.0.0/8", "a", "10.1.2.3", True),
        ("10.0.0.0/8", "a", "93.184.216.34", False),
        ("10.0.0.0/8,public", "a", "93.184.216.34", True),
        ("127.0.0.1", "localhost", "127.0.0.1", True),
        ("localhost", "localhost", "127.0.0.1", True),
        ("localhost", "127.0.0.1", "127.0.0.1", True),
        ("localhost", "127.8.9.10", "127.8.9.10", True),
        ("LocalHost.", "::1", "::1", True),
        ("localhost", "another.name", "127.0.0.1", True),
        ("localhost", "localhost", "93.184.216.34", False),
        ("localhost", "example.org", "93.184.216.34", False),
        ("localhost", "rebound.example", "169.254.169.254", False),
        ("localhost,public", "example.org", "93.184.216.34", True),
    ],
)
def test_targets_are_judged_by_address(allowed: str | None, host: str, address: str, ok: bool) -> None:
    """Loopback, the link and metadata services are refused whatever the name; a list allows what it names."""
    assert Targets(allowed)._allows(host, ip_address(address)) is ok


def test_own_addresses_need_the_allow_list() -> None:
    """An address of this machine that is not loopback is refused like loopback; its neighbours are not."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; the kernel chooses the address to send from
        except OSError:
            pytest.skip("this machine has no address but loopback")
        own = probe.getsockname()[0]
    targets = Targets(None)
    with pytest.raises(InvalidInputError, match=re.escape(own)):
        targets.check_url(f"http://{own}:8000/cb")
    with pytest.raises(InvalidInputError, match=re.escape(own)):
        asyncio.run(targets.resolve(f"http://{own}:8000/cb"))
    assert targets._allows("mapped.example", ip_address(f"::ffff:{own}")) is False
    assert str(asyncio.run(Targets(own).resolve(f"http://{own}:8000/cb")).address) == own
    assert targets._allows("orchestrator", ip_address("10.255.254.253")) is True


def test_a_name_is_judged_when_it_is_connected_to() -> None:
    """localhost is refused at delivery, too; the address that was judged is the one that is used."""
    with pytest.raises(InvalidInputError, match="localhost"):
        asyncio.run(Targets(None).resolve("http://localhost:1/x"))
    target = asyncio.run(Targets("localhost").resolve("http://localhost:1/x?y=1"))
    assert target.address.is_loopback and (target.host, target.port, target.path) == ("localhost", 1, "/x?y=1")
