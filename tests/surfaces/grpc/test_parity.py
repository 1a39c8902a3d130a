"""The proto against the service: every operation, field and error is there, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from inspect import Parameter, signature
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from pydantic import BaseModel

from debug_server import errors, kanban
from debug_server.messages import OPERATIONS
from debug_server.model import LIMITS, ExitRecord
from debug_server.service import ERRORS
from debug_server.surfaces.grpc import v1
from debug_server.surfaces.grpc.refusal import status_of, trailers
from debug_server.surfaces.grpc.schema import BASE64_FIELDS, SERVICE, rpc, rpc_name

ROOT = Path(__file__).resolve().parents[3]

MORE_RPCS = {
    "FetchArtifact": "the bytes of get_artifact's file, which other surfaces send as a download",
    "FetchDiff": "diff_session's bytes when they are no text, or too many for one message",
}
OTHER_FIELDS = {
    "WriteStdinRequest": {"encoding"},  # bytes travel as bytes
}
ALIASES = {"commit"}  # second names that the proto has, too
WRITTEN_OUT = {"Exit": ExitRecord}  # a plain object in the reply, a message with fields here


def test_every_operation_has_its_rpc() -> None:
    """The service's rpcs are the table's operations and those listed here with their reasons; streams are streams."""
    assert set(SERVICE.methods_by_name) == {rpc_name(name) for name in OPERATIONS} | set(MORE_RPCS)
    for operation in OPERATIONS.values():
        assert rpc(rpc_name(operation.name)).streams == operation.stream


@pytest.mark.parametrize("name", OPERATIONS)
def test_messages_have_the_fields_of_the_table(name: str) -> None:
    """Request and reply have the same field names as the table's, all the way down."""
    operation, called = OPERATIONS[name], rpc(rpc_name(name))
    assert list(differences(called.request.DESCRIPTOR, operation.request)) == []
    assert list(differences(called.reply.DESCRIPTOR, operation.reply)) == []


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_default_that_is_not_zero_can_be_told_from_zero(name: str) -> None:
    """A request's field with a default of its own knows whether it was set."""
    operation, called = OPERATIONS[name], rpc(rpc_name(name))
    for field in called.request.DESCRIPTOR.fields:
        if field.name in ALIASES:
            assert field.has_presence, field.full_name
            continue
        default = operation.request.model_fields[BASE64_FIELDS.get(field.name, field.name)].get_default(
            call_default_factory=False
        )
        if isinstance(default, int | float | str) and default:
            assert field.has_presence, field.full_name


def differences(found: Any, expected: type[BaseModel]) -> list[str]:
    """What one has and the other has not."""
    renamed = {base64: plain for plain, base64 in BASE64_FIELDS.items()}
    names = {
        renamed.get(name, name) for name in (*expected.model_fields, *expected.model_computed_fields)
    } - OTHER_FIELDS.get(found.name, set())
    names |= ALIASES & {str(name) for item in expected.model_fields.values() for name in choices_of(item)}
    wrong = [f"{found.name}.{name}" for name in names ^ set(found.fields_by_name)]
    for name in set(expected.model_fields) & set(found.fields_by_name):
        wrong += nested(found.fields_by_name[name], expected.model_fields[name].annotation)
    return wrong


def choices_of(field: Any) -> list[Any]:
    """The names that a field may have."""
    return list(getattr(field.validation_alias, "choices", ()))


def nested(field: FieldDescriptor, annotation: Any) -> list[str]:
    """The same for what a field holds."""
    if field.message_type is not None and field.message_type.name in WRITTEN_OUT:
        expected = {item.name for item in fields(WRITTEN_OUT[field.message_type.name])}
        return [f"{field.message_type.name}.{name}" for name in expected ^ set(field.message_type.fields_by_name)]
    models = [kind for kind in leaves(annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return [wrong for model in models if field.message_type for wrong in differences(field.message_type, model)]


def leaves(annotation: Any) -> list[Any]:
    """The types in an annotation, without unions and lists around them."""
    if get_origin(annotation) in (Union, UnionType, list):
        return [leaf for part in get_args(annotation) for leaf in leaves(part)]
    return [annotation]


@pytest.mark.parametrize("code", ERRORS)
def test_every_error_has_a_status(code: str) -> None:
    """Each row of the error table names a status that gRPC has, and no failure looks like success."""
    assert grpc.StatusCode[ERRORS[code].grpc] is not grpc.StatusCode.OK


def error_classes(kind: type[errors.DebugServerError]) -> list[type[errors.DebugServerError]]:
    """A class and everything below it in the tree."""
    return [kind, *(found for below in kind.__subclasses__() for found in error_classes(below))]


@pytest.mark.parametrize(
    "kind", [kind for kind in error_classes(errors.DebugServerError) if kind.__module__ == errors.__name__]
)
def test_every_error_is_told(kind: type[errors.DebugServerError]) -> None:
    """Each class of the tree gives its status, its code and whether to try again."""
    given = signature(kind.__init__).parameters.values()
    more = [item.name for item in given if item.kind is Parameter.KEYWORD_ONLY and item.name != "violations"]
    error = kind("a sentence", **dict.fromkeys(more, 1))
    told = dict(trailers(error))
    assert status_of(error).name == ERRORS[kind.code].grpc
    assert told["code"] == kind.code
    assert told["retryable"] == ("true" if ERRORS[kind.code].retryable else "false")
    assert ("retry-after" in told) == isinstance(error, errors.UnavailableError)


def test_the_limits_of_the_proto_are_those_of_the_table() -> None:
    """Each limit is a field of the proto's message, numbered by its place in the table."""
    found = [(item.name, item.number, item.type) for item in SERVICE.file.message_types_by_name["Limits"].fields]
    kinds = {True: FieldDescriptor.TYPE_INT64, False: FieldDescriptor.TYPE_DOUBLE}
    table = enumerate(LIMITS.values(), 1)
    assert found == [(limit.name, number, kinds[limit.unit.is_whole]) for number, limit in table], "run `make protos`"


def test_the_generated_messages_are_current(tmp_path: Path) -> None:
    """Generating from the proto anew gives the files that are in the package."""
    pytest.importorskip("grpc_tools")
    subprocess.run([sys.executable, str(ROOT / "scripts/protos.py"), str(tmp_path)], check=True, timeout=200)
    kept = {path.name: path for package in (v1, kanban) for path in Path(package.__path__[0]).glob("*_pb2*.py*")}
    made = {path.name: path for path in tmp_path.iterdir()}
    assert made.keys() == kept.keys()
    for name, path in made.items():
        assert kept[name].read_bytes() == path.read_bytes(), "run `make protos`"
