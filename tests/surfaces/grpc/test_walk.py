"""A day over gRPC with a client that has no generated code: it learns everything by reflection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.repositories import make_repository
from tests.servers import ServerProcess, serving

PATCH = """\
diff --git a/note.txt b/note.txt
new file mode 100644
--- /dev/null
+++ b/note.txt
@@ -0,0 +1 @@
+patched
"""
SECONDS = 100


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server in a process of its own."""
    with serving(tmp_path_factory.mktemp("server"), grpc=True) as running:
        yield running


class Reflected:
    """A client that knows the server's address, and nothing of its messages."""

    def __init__(self, channel: grpc.Channel, token: str) -> None:
        self._channel = channel
        self._metadata = [("authorization", f"Bearer {token}")]
        database = ProtoReflectionDescriptorDatabase(channel)
        self._pool = DescriptorPool(database)
        (name,) = [found for found in database.get_services() if found.endswith(".DebugServer")]
        self._service = self._pool.FindServiceByName(name)

    def __call__(self, rpc: str, /, **fields: Any) -> Any:
        """The reply of an rpc, or an iterator over the replies of a stream."""
        method = self._service.methods_by_name[rpc]
        request, reply = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        kind = self._channel.unary_stream if method.server_streaming else self._channel.unary_unary
        path = f"/{self._service.full_name}/{rpc}"
        send = kind(path, request_serializer=request.SerializeToString, response_deserializer=reply.FromString)
        return send(request(**fields), metadata=self._metadata, timeout=SECONDS)

    def details(self, error: grpc.RpcError) -> dict[str, str]:
        """What is wrong with each field; the messages of the details are reflected, too."""
        status: Any = self._message("google.rpc.Status")
        status.ParseFromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
        found: Any = self._message("google.rpc.BadRequest")
        assert status.details[0].Unpack(found)
        return {one.field: one.description for one in found.field_violations}

    def _message(self, name: str) -> Any:
        return GetMessageClass(self._pool.FindMessageTypeByName(name))()


def test_a_day_by_reflection(server: ServerProcess) -> None:
    """Open, patch, run, fail, digest, diff, cancel, list, history, and a mistake that is explained."""
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = Reflected(channel, server.token)
        call("RegisterRepository", name="project", remote_url=str(make_repository(server.root / "project")))
        session = call("OpenSession", repository="project", commit_sha="HEAD", patch=PATCH).id
        assert call("ExecCommand", session_id=session, argv=["cat", "note.txt"]).stdout == b"patched\n"
        failed = call("ExecCommand", session_id=session, argv=["sh", "-c", "seq 300; echo 'Error: 4 != 5'; exit 3"])
        assert (failed.ended, failed.exit_code, failed.exit_reason) == (True, 3, "nonzero_exit")
        assert "4 != 5" in call("DigestLog", command_id=failed.command_id).first_error.text
        assert call("ReadLogText", command_id=failed.command_id, tail=1).text == "Error: 4 != 5\n"
        log = b"".join(piece.data for piece in call("FollowLog", command_id=failed.command_id))
        assert log.startswith(b"1\n2\n") and log.endswith(b"Error: 4 != 5\n")
        call("ExecCommand", session_id=session, argv=["touch", "made.txt"])
        assert "made.txt" in call("DiffSession", session_id=session).patch
        long = call("SubmitCommand", session_id=session, argv=["sleep", "600"])
        assert not long.ended
        assert long.id in [item.id for item in call("FindCommands", status=["active"]).items]
        call("CancelCommand", command_id=long.id)
        ended = call("WaitCommand", command_id=long.id, timeout=SECONDS)
        assert (ended.ended, ended.exit_reason) == (True, "cancelled")
        assert session in [item.id for item in call("ListSessions", status=["open"]).items]
        call("CloseSession", session_id=session)
        history = {item.id: item.exit_reason for item in call("FindCommands", status=["ended"]).items}
        assert (history[failed.command_id], history[long.id]) == ("nonzero_exit", "cancelled")
        with pytest.raises(grpc.RpcError) as caught:
            call("SubmitCommand", session_id=session, priority=9999)
        assert call.details(caught.value) == {
            "argv": 'field required, for example ["pytest", "-q"]',
            "priority": "must be at most 1000, not 9999, for example 0",
        }
