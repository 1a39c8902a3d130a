"""The SDK is the service's table over HTTP: every operation, every reply, every field, every error."""

from __future__ import annotations

import inspect
from typing import get_args, get_type_hints

import httpx
import pytest

from debug_server import errors
from debug_server.client import AsyncDebugServerClient, DebugServerClient, calls
from debug_server.client.failures import classes_by_code, error_from_response
from debug_server.errors import DebugServerError
from debug_server.messages import OPERATIONS, VARIANTS
from debug_server.service.errors_table import ERRORS, mapping_of

CLIENTS = (DebugServerClient, AsyncDebugServerClient)
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


def test_each_call_has_a_route_and_the_fields_of_its_request() -> None:
    """A call's parameters are fields of the operation's request, and its reply is the operation's reply."""
    for name in set(OPERATIONS) - STREAMS - COMPOSED:
        build = getattr(calls, name)
        hints = get_type_hints(build)
        (reply,) = get_args(hints["return"])
        assert reply is OPERATIONS[name].reply, name
        known = set(OPERATIONS[name].request.model_fields)
        given = set(inspect.signature(build).parameters)
        renamed = {"wait_command": {"seconds"}, "exec_command": {"key"}}.get(name, set())  # the key is a header
        assert given - renamed <= known, name
    assert {call.operation for call in (calls.artifact_file(1, 1), calls.session_patch(1))} <= set(VARIANTS)


def test_every_error_code_comes_back_as_its_class() -> None:
    """A refusal with any code of the table is raised as the class of the error tree that has the code."""
    assert set(classes_by_code()) == set(ERRORS)
    request = httpx.Request("GET", "http://server/")
    for code, cls in classes_by_code().items():
        body = {"error": {"code": code, "message": "because", "retryable": False}}
        found = error_from_response(httpx.Response(ERRORS[code].http, json=body, request=request))
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
    found = error_from_response(httpx.Response(status, text="<html>", headers={"Retry-After": "3"}, request=request))
    assert type(found) is expected
    assert f"http://proxy/sessions answered {status}" in str(found)
    if isinstance(found, errors.UnavailableError):
        assert found.retry_after == 3.0
