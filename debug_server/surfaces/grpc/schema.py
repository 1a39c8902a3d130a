"""The proto's service: its rpcs by name, and the message classes of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from debug_server.surfaces.grpc.v1 import debug_server_pb2

BASE64_FIELDS: Final = {"patch_bytes": "patch_base64"}  # bytes here; the messages' names say how JSON carries them
SERVICE: Final = debug_server_pb2.DESCRIPTOR.services_by_name["DebugServer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rpc:
    """One rpc of the service."""

    name: str
    path: str  # as it is on the wire
    request: type[Message]
    reply: type[Message]
    streams: bool


def rpc(name: str) -> Rpc:
    """The rpc of this name; KeyError when the proto has none."""
    method: MethodDescriptor = SERVICE.methods_by_name[name]
    return Rpc(
        name=name,
        path=f"/{SERVICE.full_name}/{name}",
        request=GetMessageClass(method.input_type),
        reply=GetMessageClass(method.output_type),
        streams=method.server_streaming,
    )


def rpc_name(operation: str) -> str:
    """``open_session`` is ``OpenSession`` over gRPC."""
    return "".join(word.capitalize() for word in operation.split("_"))
