"""Values that Python has and JSON has not, or that are nearly right: accepted where natural, else told plainly."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from debug_server.client import AsyncDebugServerClient, DebugServerClient
from debug_server.errors import InvalidInputError
from tests.repositories import make_repository
from tests.servers import ServerProcess

NOWHERE = "http://127.0.0.1:9"


def test_text_is_accepted_as_input(server: ServerProcess) -> None:
    """Of a command's stdin, as are bytes."""
    with DebugServerClient(base_url=server.base_url, token=server.token) as client:
        command = client.exec_command(["cat"], stdin=True, wait=0.1).command_id
        client.write_stdin(command, "tea\n")
        client.write_stdin(command, b"milk\n", close=True)
        assert client.wait_command(command).ended
        assert b"".join(piece.data for piece in client.stored_log(command)) == b"tea\nmilk\n"


def test_paths_are_accepted(server: ServerProcess, tmp_path: Path) -> None:
    """As a remote, in argv, as cwd and as a pattern of artifacts."""
    with DebugServerClient(base_url=server.base_url, token=server.token) as client:
        client.register_repository("of-paths", make_repository(tmp_path / "of-paths"))
        done = client.run(
            [Path("/bin/cat"), Path("a.txt")], repository="of-paths", cwd=Path("."), artifacts=[Path("a.txt")]
        )
        assert done.check().stdout == "hello\n"


@pytest.mark.parametrize(
    ("send", "said"),
    [
        (lambda client: client.run(["true"], timeout=math.inf), "timeout: must be a finite number, not inf"),
        (lambda client: client.run(["true"], wait=math.nan), "wait: must be a finite number, not nan"),
        (lambda client: client.wait_command(1, seconds=math.nan), "seconds: must be a finite number, not nan"),
        (
            lambda client: client.run(["true"], limits={"wall_seconds": math.inf}),
            "limits.wall_seconds: must be a finite number, not inf",
        ),
        (lambda client: client.run(None), "argv None is no list"),
        (lambda client: client.run(Path("/bin/true")), "argv PosixPath('/bin/true') is no list"),
        (lambda client: client.get_command(None), "command_id: field required"),
        (lambda client: client.open_session("r", patch=Path("a.patch")), "patch PosixPath('a.patch') is a path: give"),
        (lambda client: client.run(["true"], env={"A": b"b"}), "env.A: cannot be sent: bytes is none of JSON's types"),
        (lambda client: client.open_session("r", metadata={"a": {1}}), "metadata.a: cannot be sent: set is none of"),
    ],
)
def test_a_value_that_cannot_be_sent_is_named(send: Callable[[Any], Any], said: str) -> None:
    """Before anything is sent, by its field."""
    with DebugServerClient(base_url=NOWHERE, token="") as client, pytest.raises(InvalidInputError) as caught:
        send(client)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("timeout", [math.inf, math.nan, 0, -1])
def test_the_timeout_of_a_client(timeout: float) -> None:
    """A time that no request can have is refused at once."""
    for kind in (DebugServerClient, AsyncDebugServerClient):
        with pytest.raises(InvalidInputError, match="must be a number of seconds above 0"):
            kind(base_url=NOWHERE, token="", timeout=timeout)


def test_a_closed_client_says_so(tmp_path: Path) -> None:
    """For requests, streams and downloads, of both clients."""
    client = DebugServerClient(base_url=NOWHERE, token="")
    client.close()
    for use in (
        client.who_am_i,
        lambda: next(client.follow_log(1)),
        lambda: client.download_artifact(1, 1, tmp_path / "a"),
    ):
        with pytest.raises(InvalidInputError, match="this client is closed"):
            use()

    async def later() -> None:
        other = AsyncDebugServerClient(base_url=NOWHERE, token="")
        await other.close()
        with pytest.raises(InvalidInputError, match="this client is closed"):
            await other.who_am_i()
        with pytest.raises(InvalidInputError, match="this client is closed"):
            await anext(aiter(other.follow_log(1)))
        with pytest.raises(InvalidInputError, match="this client is closed"):
            await other.download_artifact(1, 1, tmp_path / "a")

    asyncio.run(later())
