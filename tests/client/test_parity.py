"""The SDK is the service's table over HTTP: every operation, every reply, every field, every error."""

from __future__ import annotations

import inspect
from typing import get_args, get_type_hints

import httpx
import pytest

from debug_server import errors
from debug_server.client import AsyncDebugServerClient, DebugServerClient, calls
from debug_server.client.failures import classes_by_code, error_from_response
from debug_server.client.verbs import Verbs
from debug_server.errors import DebugServerError
from debug_server.messages import OPERATIONS, VARIANTS, Items, Operation
from debug_server.messages.task_operations import TASK_OPERATIONS
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
LISTS = (
    *("repositories", "sessions", "commands", "all_commands", "artifacts", "events", "leases", "workers", "tokens"),
    "tasks",
)
OTHER_FORMATS = {"task_log_events": "follow_task_log", "read_task_log": "stored_task_log"}
# Lists that are short, and the reply to something else.
MANY_AT_ONCE = {"fork_session", "restart_worker", "reset_worker", "stop_worker"}
# Another unit, a header, and a second name.
OWN_PARAMETERS = {"wait_command": {"seconds"}, "exec_command": {"key", "commit"}, "open_session": {"commit"}}
COMPOSED = {"read_log"}  # the API has logs as a stream of lines; a page is the head of one


@pytest.mark.parametrize("client", CLIENTS, ids=lambda item: item.__name__)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_is_a_method(client: type, operation: str) -> None:
    """Both clients have a method for each operation of the table."""
    assert hasattr(client, operation)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda item: item.__name__)
@pytest.mark.parametrize("operation", TASK_OPERATIONS)
def test_each_operation_on_tasks_is_a_method(client: type, operation: str) -> None:
    """Both clients have a method for each operation on host tasks; a log has the same two as a command's."""
    assert hasattr(client, OTHER_FORMATS.get(operation, operation))


def test_each_list_has_an_iterator() -> None:
    """Both clients have an iterator over the items of every list of the table."""
    lists = {row.name for row in (*OPERATIONS.values(), *TASK_OPERATIONS.values()) if _is_list(row)}
    for client in CLIENTS:
        found = {vars(Verbs)[name].build.__name__ for name in LISTS if hasattr(client, name)}
        assert found == lists - MANY_AT_ONCE


def _is_list(operation: Operation) -> bool:
    return issubclass(operation.reply, Items)


def test_both_clients_have_the_same_methods() -> None:
    """The asynchronous client is the blocking one with ``await``: same names, same parameters."""
    blocking, awaited = (
        {name: getattr(client, name) for name in dir(client) if not name.startswith("_")} for client in CLIENTS
    )
    assert blocking.keys() == awaited.keys()
    for name, method in blocking.items():
        assert list(inspect.signature(method).parameters) == list(inspect.signature(awaited[name]).parameters), name
        assert inspect.getdoc(method), name
        assert inspect.getdoc(awaited[name]), name


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
        assert given - OWN_PARAMETERS.get(name, set()) <= known, name
    assert {call.operation for call in (calls.artifact_file(1, 1), calls.session_patch(1))} <= set(VARIANTS)


def test_every_error_code_comes_back_as_its_class() -> None:
    """A refusal with any code of the table is raised as the class of the error tree that has the code."""
    assert set(classes_by_code()) == set(ERRORS)
    request = httpx.Request("GET", "http://server/", headers={"Authorization": "Bearer token"})
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
