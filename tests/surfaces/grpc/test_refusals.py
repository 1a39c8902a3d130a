"""What the server says to those it does not answer, and that it goes on afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from grpc import aio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from debug_server.errors import ConfigurationError
from debug_server.surfaces.grpc import build_server
from debug_server.surfaces.grpc.decoding import plain
from debug_server.surfaces.grpc.schema import SERVICE, rpc
from debug_server.surfaces.grpc.v1 import debug_server_pb2 as pb
from tests.surfaces.grpc.conftest import Play
from tests.surfaces.grpc.serving import SECONDS, Served, refusal

# What a request may be answered with; anything else is a defect.
HONEST = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
NOT_FUZZED = {"FollowEvents", "RevokeToken"}  # one never ends, the other ends the token that we call with


def test_errors_carry_their_code(play: Play) -> None:
    """Status, code and retryability come from the one table, and the message names the wrong value."""

    async def scene(served: Served) -> None:
        ask = served.admin.ask
        session = await served.session()
        expected = [
            (ask("GetSession", session_id=999), grpc.StatusCode.NOT_FOUND, "not_found"),
            (ask("GetSession"), grpc.StatusCode.INVALID_ARGUMENT, "invalid_input"),
            (ask("ForkSession", session_id=session, count=0), grpc.StatusCode.INVALID_ARGUMENT, "invalid_input"),
            (ask("DebugSession", session_id=session), grpc.StatusCode.UNIMPLEMENTED, "debugger_unavailable"),
            (
                ask("OpenSession", repository="project", commit_sha="f" * 40),
                grpc.StatusCode.NOT_FOUND,
                "unknown_commit",
            ),
            (
                ask("OpenSession", repository="project", commit_sha="HEAD", metadata={"x": float("nan")}),
                grpc.StatusCode.INVALID_ARGUMENT,
                "invalid_input",
            ),
        ]
        for call, status, code in expected:
            found, told = await refusal(call)
            assert (found, told["code"], told["retryable"]) == (status, code, "false")
        served.service.drain()
        found, told = await refusal(ask("OpenSession", repository="project", commit_sha="HEAD"))
        assert (found, told["code"], told["retryable"]) == (grpc.StatusCode.UNAVAILABLE, "draining", "true")
        assert float(told["retry-after"]) > 0

    play(scene)


def test_a_long_message_arrives(play: Play) -> None:
    """An error whose message is larger than a client's metadata limit is shortened, not lost."""

    async def scene(served: Served) -> None:
        scopes = ["\N{SNOWMAN}\n" * 20_000]
        found, told = await refusal(served.admin.ask("CreateToken", name="x", scopes=scopes))
        assert (found, told["code"]) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_input")

    play(scene)


def test_every_wrong_field_is_told(play: Play) -> None:
    """An invalid request is answered with the standard details, within bounds: each field and what is wrong with it."""

    async def scene(served: Served) -> None:
        found, told = await refusal(served.admin.ask("SubmitCommand", session_id=1, argv=[], priority=5000))
        assert found == grpc.StatusCode.INVALID_ARGUMENT
        assert violations(told) == {
            "argv": 'field required, for example ["pytest", "-q"]',
            "priority": "must be at most 1000, not 5000, for example 0",
        }
        scopes = ["\N{SNOWMAN}\n" * 20_000]
        found, told = await refusal(served.admin.ask("CreateToken", name="x" * 200, scopes=scopes, expires_in=-1))
        assert violations(told)["name"].startswith("must have at most 128 characters")
        assert sum(map(len, told.values())) < 8192 * 3 // 4

    play(scene)


def violations(told: dict[str, Any]) -> dict[str, str]:
    """The wrong fields in the details of a refusal."""
    status, bad = Status.FromString(told["grpc-status-details-bin"]), BadRequest()
    assert status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert status.details[0].Unpack(bad)
    return {one.field: one.description for one in bad.field_violations}


def test_a_request_that_is_too_large_is_refused(play: Play) -> None:
    """Above the server's bound a request is refused as too large, and the connection goes on."""

    async def scene(served: Served) -> None:
        fields: dict[str, Any] = {"repository": "project", "commit_sha": "HEAD"}
        found, _ = await refusal(served.admin.ask("OpenSession", **fields, patch="x" * (21 << 20)))
        assert found == grpc.StatusCode.RESOURCE_EXHAUSTED
        found, told = await refusal(served.admin.ask("OpenSession", **fields, patch="x" * (17 << 20)))
        assert (found, told["code"]) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_input")
        assert (await served.admin.ask("WhoAmI")).name == "admin"

    play(scene)


def test_an_unknown_rpc_is_refused(play: Play) -> None:
    """A method that the proto has not is UNIMPLEMENTED."""

    async def scene(served: Served) -> None:
        call = served.admin.channel.unary_unary(f"/{SERVICE.full_name}/Nonsense")
        found, _ = await refusal(call(b"", timeout=SECONDS))
        assert found == grpc.StatusCode.UNIMPLEMENTED

    play(scene)


def test_any_bytes_are_answered(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever bytes come as a request of any rpc, the answer is a documented status and the server goes on."""

    async def scene(served: Served) -> None:
        loop = asyncio.get_running_loop()
        names = st.sampled_from(sorted(set(SERVICE.methods_by_name) - NOT_FUZZED))

        @settings(
            max_examples=150, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
        )
        @given(name=names, data=st.data())
        def any_bytes(name: str, data: st.DataObject) -> None:
            raw = data.draw(st.one_of(st.binary(max_size=200), messages(rpc(name).request)))
            sent = asyncio.run_coroutine_threadsafe(served.admin.send(name, raw), loop)
            assert sent.result(SECONDS + 30) in HONEST, name

        await asyncio.to_thread(any_bytes)
        for name in NOT_FUZZED:
            assert await served.admin.send(name, b"\xff") == grpc.StatusCode.INVALID_ARGUMENT
        assert (await served.admin.ask("Health")).ok

    with caplog.at_level(logging.ERROR):
        play(scene)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


TEXT = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(["project", "HEAD", "\x00", "..", "/"])
NUMBER = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3)
STRUCT = st.dictionaries(TEXT, st.none() | TEXT | st.floats() | st.booleans() | st.lists(TEXT, max_size=2), max_size=3)
SCALARS = {
    "TYPE_STRING": TEXT,
    "TYPE_INT64": NUMBER,
    "TYPE_INT32": st.integers(-(2**31), 2**31 - 1),
    "TYPE_DOUBLE": st.floats(),
    "TYPE_BOOL": st.booleans(),
    "TYPE_BYTES": st.binary(max_size=50),
}


def messages(kind: type[Message]) -> st.SearchStrategy[bytes]:
    """Well-formed requests with wild values, encoded."""
    values = {field.name: st.none() | _values(field) for field in kind.DESCRIPTOR.fields}
    return st.fixed_dictionaries(values).map(lambda found: _encoded(kind, found))


def _encoded(kind: type[Message], found: dict[str, object]) -> bytes:
    set_ones = {name: value for name, value in found.items() if value is not None}
    # What runs must end by itself: a wild command line is only ever a word that no program has.
    if "argv" in set_ones:
        set_ones["argv"] = ["no-such-program"]
    if "timeout" in set_ones:
        set_ones["timeout"] = 0.01
    return kind(**set_ones).SerializeToString()


def _values(field: Any) -> st.SearchStrategy[object]:
    kind = field.message_type
    if kind is not None and kind.name == "Struct":
        return STRUCT
    if kind is not None and kind.GetOptions().map_entry:
        return st.dictionaries(TEXT, TEXT, max_size=3)
    if kind is not None:
        return st.just({})
    names = {value: name for name, value in vars(type(field)).items() if name.startswith("TYPE_")}
    scalar = SCALARS[names[field.type]]
    return st.lists(scalar, max_size=3) if field.is_repeated else scalar


def test_bytes_keep_their_value_on_the_way_in() -> None:
    """What is not set is left out; whole numbers of a Struct are whole; bytes are base64."""
    request = pb.OpenSessionRequest(repository="r", metadata={"a": 1, "b": 1.5, "c": None, "d": [True, {"e": 2**53}]})
    assert plain(request) == {
        "repository": "r",
        "metadata": {"a": 1, "b": 1.5, "c": None, "d": [True, {"e": 2**53}]},
    }
    assert type(plain(request)["metadata"]["a"]) is int
    assert plain(pb.WriteStdinRequest(data=b"\xff")) == {"data": "/w=="}


def test_a_taken_port_is_an_error(play: Play) -> None:
    """A second server on a port that somebody has is refused with a sentence, not started in silence."""

    async def scene(served: Served) -> None:
        with pytest.raises(ConfigurationError, match=f":{served.port}"):
            build_server(served.service, port=served.port)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with pytest.raises(ConfigurationError):
                build_server(served.service, port=taken.getsockname()[1])

    play(scene)


def test_garbage_on_the_connection_hurts_nobody(play: Play) -> None:
    """A peer that speaks no HTTP/2 is dropped; others are answered."""

    async def scene(served: Served) -> None:
        for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 1000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 500):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(noise)
            await writer.drain()
            writer.write_eof()
            async with asyncio.timeout(SECONDS):
                with contextlib.suppress(ConnectionError):  # with bytes unread the kernel resets it instead
                    while await reader.read(4096):
                        pass
            writer.close()
        async with aio.insecure_channel(f"127.0.0.1:{served.port}") as channel:
            call = channel.unary_unary("/grpc.health.v1.Health/Check")
            assert await call(b"", timeout=SECONDS)
            found, _ = await refusal(call(b"\xff\xff\xff", timeout=SECONDS))
            assert found is not grpc.StatusCode.OK
        assert (await served.admin.ask("Health")).ok

    play(scene)
