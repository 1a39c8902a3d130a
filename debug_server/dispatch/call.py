"""``python -m debug_server.dispatch.call``: makes the gRPC call that stdin describes and prints the response.

    connect (once more after a pause) -> send, with a deadline -> response as JSON

It runs as a command, so the call has a log and an exit record and survives the server. A request is sent at most once:
only a failed connection is tried a second time.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from debug_server.client.relay import Relay
from debug_server.dispatch.call_exits import DEADLINE, NOT_OK, PROTOCOL, UNAVAILABLE, UNCONFIGURED
from debug_server.errors import AccessError, InvalidInputError
from debug_server.kanban import kanban_pb2
from debug_server.sockets.trust import TrustedServerUser

TARGET_USER = "DEBUG_SERVER_UID"
REDIRECTED = "probe"  # the only runner whose target can be set by variables
_CONNECT_SECONDS, _BACKOFF_SECONDS = 5.0, 0.5
_OPTIONS = (
    ("grpc.enable_retries", 0),  # a request is sent at most once
    ("grpc.max_receive_message_length", 16 << 20),
)
_EXITS = {grpc.StatusCode.DEADLINE_EXCEEDED: DEADLINE, grpc.StatusCode.UNAVAILABLE: UNAVAILABLE}


class CallError(Exception):
    """Why there is no response, and the exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: where, what, with which event, and until when."""

    target: str
    rpc: str
    deadline: float  # monotonic
    event: Mapping[str, Any]
    target_uid: int | None = None  # may own a target on this machine, like this user and root

    def seconds_left(self) -> float:
        """Seconds until the deadline."""
        return max(0.001, self.deadline - time.monotonic())


def main() -> int:
    """Make the call; the exit status says how it went."""
    try:
        call = read_call(sys.stdin.read(), os.environ)
        return print_response(respond(call))
    except CallError as error:
        sys.stderr.write(f"{error}\n")
        return error.status


def read_call(text: str, environ: Mapping[str, str]) -> Call:
    """The call that the event on stdin describes; PROBE_HOST and PROBE_GRPC_PORT change the target of ``probe``."""
    try:
        event = json.loads(text)
        host, _, port = event["target"].rpartition(":")
        rpc, seconds = event["rpc"], float(event["timeout"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CallError(f"stdin is not an event with target, rpc and timeout: {error!r}", UNCONFIGURED) from error
    if event.get("runner") == REDIRECTED:
        host, port = environ.get("PROBE_HOST") or host, environ.get("PROBE_GRPC_PORT") or port
    uid = environ.get(TARGET_USER, "")
    return Call(
        target=f"{host}:{port}",
        rpc=rpc,
        deadline=time.monotonic() + seconds,
        event=event,
        target_uid=int(uid) if uid.isascii() and uid.isdigit() else None,
    )


def respond(call: Call) -> dict[str, Any]:
    """The response's fields."""
    try:
        relay = Relay(call.target, TrustedServerUser(uid=call.target_uid))
    except InvalidInputError as error:
        raise CallError(str(error), UNCONFIGURED) from error
    with relay, connect(call, relay) as channel:
        method = find_method(call, channel)
        return invoke(call, channel, method)


def connect(call: Call, relay: Relay) -> grpc.Channel:
    """A connected channel; a second attempt follows a pause."""
    for attempt in (1, 2):
        channel = grpc.insecure_channel(relay.address, options=(*relay.options, *_OPTIONS))
        if _is_ready(channel, min(call.seconds_left(), _CONNECT_SECONDS)):
            return channel
        channel.close()
        if isinstance(relay.failure, AccessError):
            raise CallError(str(relay.failure), UNAVAILABLE)
        if attempt == 1:
            sys.stderr.write(f"{call.target} does not answer: trying once more\n")
            sys.stderr.flush()
            time.sleep(min(_BACKOFF_SECONDS, call.seconds_left()))
    raise CallError(f"{call.target} does not answer: nothing was sent", UNAVAILABLE)


def _is_ready(channel: grpc.Channel, seconds: float) -> bool:
    connected_or_failed = threading.Event()
    states: list[grpc.ChannelConnectivity] = []

    def changed(state: grpc.ChannelConnectivity) -> None:
        states.append(state)
        if state in (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE):
            connected_or_failed.set()

    channel.subscribe(changed, try_to_connect=True)
    connected_or_failed.wait(seconds)
    channel.unsubscribe(changed)
    return grpc.ChannelConnectivity.READY in states


def find_method(call: Call, channel: grpc.Channel) -> MethodDescriptor:
    """From our own proto, or else by reflection of the server."""
    service, _, method = call.rpc.rpartition(".")
    known = kanban_pb2.DESCRIPTOR.services_by_name.get(service.removeprefix("kanban."))
    found = known or _reflected(call, channel, service)
    if method not in found.methods_by_name:
        raise CallError(f"service {found.full_name} has no method {method!r}", UNCONFIGURED)
    descriptor: MethodDescriptor = found.methods_by_name[method]
    if descriptor.client_streaming or descriptor.server_streaming:
        raise CallError(f"{call.rpc} streams: use an rpc with one request and one response", UNCONFIGURED)
    return descriptor


def _reflected(call: Call, channel: grpc.Channel, service: str) -> Any:
    database = ProtoReflectionDescriptorDatabase(channel)
    try:
        names = [name for name in database.get_services() if name == service or name.endswith(f".{service}")]
        if len(names) != 1:
            raise CallError(f"{call.target} has {len(names)} services named {service!r}", UNCONFIGURED)
        return DescriptorPool(database).FindServiceByName(names[0])
    except (grpc.RpcError, KeyError, TypeError) as error:
        raise CallError(
            f"{call.target} does not describe {service!r} by reflection: {error!r}", UNCONFIGURED
        ) from error


def invoke(call: Call, channel: grpc.Channel, method: MethodDescriptor) -> dict[str, Any]:
    """Send the request once and wait for its response until the deadline."""
    request, reply = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    send = channel.unary_unary(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=request.SerializeToString,
        response_deserializer=reply.FromString,
    )
    try:
        response = send(fill(request, call.event), timeout=call.seconds_left())
    except grpc.RpcError as error:
        status = _EXITS.get(error.code(), PROTOCOL)
        note = " The request may have been received and is not sent again." if status == UNAVAILABLE else ""
        raise CallError(
            f"{call.rpc} at {call.target}: {error.code().name}: {error.details()}.{note}", status
        ) from error
    shown: dict[str, Any] = json_format.MessageToDict(
        response, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return shown


def fill(kind: type[Any], event: Mapping[str, Any]) -> Any:
    """A request whose fields are taken by name from the payload, then from the event."""
    try:
        payload = json.loads(event.get("payload") or "{}")
    except (ValueError, RecursionError):
        payload = {}
    values = {**event, **(payload if isinstance(payload, dict) else {}), "repo_name": event.get("repo_name", "")}
    chosen = {name: values[name] for name in kind.DESCRIPTOR.fields_by_name if name in values}
    try:
        return json_format.ParseDict(chosen, kind())
    except json_format.ParseError as error:
        raise CallError(f"the payload does not fit {kind.DESCRIPTOR.full_name}: {error}", UNCONFIGURED) from error


def print_response(response: Mapping[str, Any]) -> int:
    """Print it as JSON; a response with a false ``ok`` is a failure."""
    sys.stdout.write(json.dumps(response) + "\n")
    if response.get("ok", True):
        return 0
    sys.stderr.write(f"the response is not ok: {response.get('error') or 'it gives no reason'}\n")
    return NOT_OK


if __name__ == "__main__":
    sys.exit(main())
