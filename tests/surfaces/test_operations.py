"""The tables of operations against every surface: each operation is everywhere, or its absence has a reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from starlette.routing import Route

from debug_server.app.asgi import create_app
from debug_server.client import AsyncDebugServerClient, DebugServerClient
from debug_server.messages import OPERATIONS, VARIANTS
from debug_server.messages.task_operations import TASK_OPERATIONS
from debug_server.surfaces.cli.main import LazyCommands
from debug_server.surfaces.grpc.schema import SERVICE, rpc_name
from debug_server.surfaces.mcp.tools import OPERATIONS_WITHOUT_TOOL, TOOLS
from tests.running import ROOT
from tests.surfaces.http.serving import open_local

# The command line has no command for this, because:
WITHOUT_COMMAND = {
    "read_log": "`logs` follows or copies the stored log from any offset, which needs no pages",
}
RPCS_OF_BYTES = {"FetchArtifact", "FetchDiff"}  # as the two formats of HTTP that send files

# Commands that run something, with the options of --repo, --env and --cwd that they lack, and why.
_GIVEN = "the server's settings name the program of every task, its mode the folder, and its prompt what it is to do"
RUNNING: dict[str, dict[str, str]] = {
    "run": {},
    "exec": {},
    "command run": {},
    "command submit": {"--repo": "the session has a workspace"},
    "session create": {},
    "rerun": {"--repo": "it is that of the earlier command", "--cwd": "it is that of the earlier command"},
    "tasks submit": {"--env": _GIVEN, "--cwd": _GIVEN},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """Method and path of every route."""
    with open_local(tmp_path_factory.mktemp("app")) as local:
        routes = [route for route in create_app(local).routes if isinstance(route, Route)]
    return {(method, route.path) for route in routes for method in route.methods or ()}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_on_every_surface(name: str, served: set[tuple[str, str]]) -> None:
    """HTTP, gRPC, both clients, MCP and the command line; an exception has its reason."""
    operation = OPERATIONS[name]
    assert (operation.route.method, operation.route.path) in served
    assert rpc_name(name) in SERVICE.methods_by_name
    assert hasattr(DebugServerClient, name) and hasattr(AsyncDebugServerClient, name)
    has_tool = any(name in tool.operations for tool in TOOLS.values())
    assert has_tool != (name in OPERATIONS_WITHOUT_TOOL), "a tool, or a reason, and not both"
    assert (name in called_by_commands()) != (name in WITHOUT_COMMAND), "a command, or a reason, and not both"


def test_no_surface_has_an_operation_of_its_own() -> None:
    """What gRPC, MCP and the SDK offer comes from the table."""
    assert set(SERVICE.methods_by_name) - {rpc_name(name) for name in OPERATIONS} == RPCS_OF_BYTES
    assert {name for tool in TOOLS.values() for name in tool.operations} <= set(OPERATIONS)
    assert set(VARIANTS) & set(OPERATIONS) == set()


def test_every_exception_is_needed() -> None:
    """A reason for something that is there misleads."""
    reasons: Mapping[str, str] = {**WITHOUT_COMMAND, **OPERATIONS_WITHOUT_TOOL}
    assert set(reasons) <= set(OPERATIONS)
    assert all(reasons.values())


def test_tasks_are_over_http_and_where_it_helps() -> None:
    """Every operation on tasks is a method of both clients; gRPC and MCP have none of them.

    An orchestrator speaks HTTP, and each task is also a command, which every surface has.
    """
    formats = {"read_task_log": "stored_task_log", "task_log_events": "follow_task_log"}
    for name in TASK_OPERATIONS:
        assert hasattr(DebugServerClient, formats.get(name, name))
        assert rpc_name(name) not in SERVICE.methods_by_name
        assert name not in TOOLS


@pytest.mark.parametrize("name", RUNNING)
def test_a_command_that_runs_something_says_where_and_with_which_variables(name: str) -> None:
    """With the same options everywhere; one that is missing has its reason."""
    command: Any = LazyCommands()
    for word in name.split():
        command = command.get_command(typer.Context(command), word)
    options = {option for parameter in command.params for option in parameter.opts}
    assert {"--repo", "--env", "--cwd"} - options == RUNNING[name].keys()


def called_by_commands() -> set[str]:
    """The operations that the command line performs: calls of the SDK's table, and methods of its backends."""
    return {name for path in (ROOT / "debug_server/surfaces/cli").rglob("*.py") for name in _attributes(path)}


def _attributes(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(value=ast.Name(id="calls"), attr=name):
                yield name
            case ast.Attribute(value=ast.Name(id="backend"), attr="follow_log" | "follow_events" as name):
                yield name
