"""The SDK is the service's table over HTTP: every operation, every reply, every field, every error."""

from __future__ import annotations

import dataclasses
import inspect
import types
from typing import Any, get_args, get_origin, get_type_hints

import httpx
import pytest

from debug_server import errors
from debug_server.client import AsyncDebugServerClient, DebugServerClient, calls, replies
from debug_server.client.failures import classes_by_code, refusal
from debug_server.client.routes import FILES, ROUTES
from debug_server.errors import DebugServerError
from debug_server.service import messages
from debug_server.service.errors_table import ERRORS, mapping_of
from debug_server.service.operations import OPERATIONS
from debug_server.surfaces.http import routes as http_routes

CLIENTS = (DebugServerClient, AsyncDebugServerClient)
REPLIES = [item for item in vars(messages).values() if isinstance(item, type) and issubclass(item, messages.Reply)]
KNOWN_NAMES = (
    "initialize_repository",
    "create_session",
    "get_session",
    "stream_session_logs",
    "send_debug_action",
    "download_artifact",
    "list_commands",
    "close",
)
STREAMS = {"follow_log", "follow_events"}  # not one request: they are streams that carry on over many
COMPOSED = {"read_log"}  # the API has logs as a stream of lines; a page is the head of one


@pytest.mark.parametrize("client", CLIENTS, ids=lambda item: item.__name__)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_is_a_method(client: type, operation: str) -> None:
    """Both clients have a method for each operation of the table."""
    assert hasattr(client, operation)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda item: item.__name__)
@pytest.mark.parametrize("name", KNOWN_NAMES)
def test_the_names_that_users_know_are_there(client: type, name: str) -> None:
    """Both clients answer to the names of the documented SDK."""
    assert hasattr(client, name)


def test_each_operation_has_its_route_in_the_http_surface() -> None:
    """Every route of the client is the HTTP surface's route of that operation, with the same method and path."""
    served = {route.operation: (route.method, route.path) for route in http_routes.ROUTES}
    assert set(ROUTES) == set(OPERATIONS)
    for operation, route in ROUTES.items():
        if operation in served:
            assert (route.method, route.path) == served[operation], operation


def test_each_call_has_a_route_and_the_fields_of_its_request() -> None:
    """A call's parameters are fields of the operation's request, and its reply is the operation's reply by name."""
    for name in set(OPERATIONS) - STREAMS - COMPOSED:
        build = getattr(calls, name)
        hints = get_type_hints(build)
        (reply,) = get_args(hints["return"])
        assert reply.__name__ == OPERATIONS[name].reply.__name__, name
        known = set(OPERATIONS[name].request.model_fields)
        given = set(inspect.signature(build).parameters)
        renamed = {"seconds"} if name == "wait_command" else set()
        assert given - renamed <= known, name
    assert set(FILES) == {"artifact_file", "session_patch"}


@pytest.mark.parametrize("reply", REPLIES, ids=lambda item: item.__name__)
def test_replies_match_field_by_field(reply: type[messages.Reply]) -> None:
    """Each reply of the service has a twin here with the same fields in the same order, of the same types."""
    if reply is messages.Reply:
        return
    twin = getattr(replies, reply.__name__)
    ours, theirs = get_type_hints(twin), get_type_hints(reply)
    assert [item.name for item in dataclasses.fields(twin)] == list(reply.model_fields)
    for name in reply.model_fields:
        assert _spelled(ours[name]) == _spelled(theirs[name]), name


def _spelled(hint: Any) -> object:
    """A type without the module that its classes come from."""
    if get_origin(hint) is None:
        return hint.__name__ if isinstance(hint, type) else hint
    origin = get_origin(hint)
    name = "union" if origin is types.UnionType else origin.__name__
    return (name, *map(_spelled, get_args(hint)))


def test_every_error_code_comes_back_as_its_class() -> None:
    """A refusal with any code of the table is raised as the class of the error tree that has the code."""
    assert set(classes_by_code()) == set(ERRORS)
    request = httpx.Request("GET", "http://server/")
    for code, cls in classes_by_code().items():
        body = {"error": {"code": code, "message": "because", "retryable": False}}
        found = refusal(httpx.Response(ERRORS[code].http, json=body, request=request))
        assert type(found) is cls
        assert str(found) == "because"
        assert mapping_of(found) is ERRORS[code]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, errors.AccessError),
        (404, errors.NotFoundError),
        (429, errors.QuotaExceededError),
        (502, errors.UnavailableError),
        (500, DebugServerError),
    ],
)
def test_an_answer_of_something_else_is_told_by_its_status(status: int, expected: type[DebugServerError]) -> None:
    """A proxy's page, which has no code of ours, becomes the nearest class, and names the address and the status."""
    request = httpx.Request("GET", "http://proxy/sessions")
    found = refusal(httpx.Response(status, text="<html>", headers={"Retry-After": "3"}, request=request))
    assert type(found) is expected
    assert f"http://proxy/sessions answered {status}" in str(found)
    if isinstance(found, errors.UnavailableError):
        assert found.retry_after == 3.0
