"""The OpenAPI document: complete, sound, and kept under fire."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Route, WebSocketRoute

from debug_server.app.asgi import create_app
from debug_server.app.parts import TASKS
from debug_server.messages import ROUTES
from debug_server.messages.task_operations import TASK_OPERATIONS
from debug_server.surfaces.http import HttpApp
from debug_server.surfaces.http.openapi import document
from debug_server.surfaces.http.tasks import TasksPart
from tests.servers import unmount_below
from tests.surfaces.http.serving import SECONDS, Served, answered, open_local

EXAMPLES = 8
UNDOCUMENTED = {"/", "/docs", "/openapi.json", "/v1/{rest}"}
_PATH_TYPE = re.compile(r":\w+}")
PATIENCE = {"follow", "timeout", "wait"}  # fields that say how long to wait, which a test need not


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with every route that the document tells of."""
    root = tmp_path_factory.mktemp("shared")
    try:
        found = Served(root, parts={TASKS})
        try:
            yield found
        finally:
            found.close()
    finally:
        unmount_below(root)


def whole_document() -> dict[str, Any]:
    """The document, without a server."""
    nothing: Any = None
    return document("t", "1", TasksPart(nothing, nothing).routes())


def test_every_route_of_the_table_is_served(shared: Served) -> None:
    """The application answers each operation, and each further form of one, where the table says."""
    served = {
        (route.path, method)
        for route in shared.app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
    }
    assert {(route.path, route.method) for route in ROUTES.values()} <= served


@pytest.fixture
def whole_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpApp]:
    """An application with every part."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/runners.yml").write_text("runners: {}\n")
    (tmp_path / "config/repos.yml").write_text("repos: {}\n")
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    monkeypatch.setenv("PROXY_USE_APP_SERVER", "false")  # the paths are there without its worker
    with open_local(tmp_path) as local:
        yield create_app(local)


@pytest.fixture
def written(whole_app: HttpApp) -> dict[str, Any]:
    """Its document."""
    return whole_app.openapi()


def test_every_route_is_documented(whole_app: HttpApp, written: dict[str, Any]) -> None:
    """What a server with every part answers and what its document says are the same paths and methods."""
    app = whole_app
    routes = {_PATH_TYPE.sub("}", route.path): route for route in app.routes if isinstance(route, Route)}
    sockets = [route for route in app.routes if isinstance(route, WebSocketRoute)]
    served = {(path, method.lower()) for path in routes for method in _methods(app, path)}
    programs = {path for path, route in routes.items() if route.methods is None}  # which choose the methods themselves
    paths = {(path, method) for path, item in written["paths"].items() for method in item if method != "servers"}
    assert {path for path, _ in paths if path in programs} == programs - UNDOCUMENTED
    assert {item for item in served if item[0] not in UNDOCUMENTED} == {
        item for item in paths if item[0] not in programs
    }
    assert {path for path, _ in paths} >= {"/kanban/events", "/hooks/{repo}", "/v1/responses", "/mcp", "/tasks"}
    assert len(sockets) == 4


def _methods(app: HttpApp, path: str) -> set[str]:
    """The methods of every route of a path."""
    found = [route for route in app.routes if isinstance(route, Route) and _PATH_TYPE.sub("}", route.path) == path]
    return {method for route in found for method in route.methods or ()} - {"HEAD"}


def test_the_document_is_openapi(written: dict[str, Any]) -> None:
    """It is valid OpenAPI 3.1, by the specification's own schema and by the rules that no schema can say."""
    OpenAPIV31SpecValidator(written).validate()


def test_every_part_is_described(written: dict[str, Any]) -> None:
    """Each operation has an id of its own, a group and a summary; each parameter and field a description."""
    operations = [item for path in written["paths"].values() for name, item in path.items() if name != "servers"]
    assert len({item["operationId"] for item in operations}) == len(operations)
    listed = {tag["name"]: tag["description"] for tag in written["tags"]}
    assert {item["tags"][0] for item in operations} == set(listed)
    assert all(item["summary"].endswith(".") for item in operations)
    bare = [f"{item['operationId']}: {at}" for item in operations for at in without_description(item)]
    bare += [f"{name}: {at}" for name, schema in written["components"]["schemas"].items() for at in fields_bare(schema)]
    assert bare == []


def without_description(operation: dict[str, Any]) -> list[str]:
    """The parameters, responses and fields of the body that say nothing."""
    found = [item["name"] for item in operation.get("parameters", ()) if "description" not in item]
    found += [
        status for status, item in operation["responses"].items() if not item.get("description") and "$ref" not in item
    ]
    for content in operation.get("requestBody", {}).get("content", {}).values():
        found += fields_bare(content["schema"])
    return found


def fields_bare(schema: dict[str, Any]) -> list[str]:
    """The fields of an object without a description."""
    return [name for name, about in schema.get("properties", {}).items() if "description" not in about]


def test_operations_are_named_as_everywhere(written: dict[str, Any]) -> None:
    """The ids are the names of the table, of its other formats, and of the tables of tasks."""
    ids = {
        item["operationId"] for path in written["paths"].values() for name, item in path.items() if name != "servers"
    }
    assert set(ROUTES) - {"health", "session_patch"} | set(TASK_OPERATIONS) <= ids


@pytest.mark.parametrize("prefix", ["", "/api/v1"])
def test_paths_with_and_without_a_version(shared: Served, prefix: str) -> None:
    """Every route of the API is at both; errors name the path and its methods as elsewhere."""
    assert answered(shared.admin.get(f"{prefix}/whoami"), 200)["name"] == "tester"
    number = shared.run(shared.session(), "echo", "hello")
    assert answered(shared.admin.get(f"{prefix}/commands/{number}"), 200)["exit_code"] == 0
    assert shared.admin.get(f"{prefix}/commands/{number}/log").content == b"hello\n"
    assert answered(shared.admin.get(f"{prefix}/tasks"), 200).keys() == {"items", "next_after"}
    with shared.socket(f"{prefix}/commands/{number}/log") as socket:
        assert json.loads(socket.recv(timeout=SECONDS))["text"] == "hello\n"
    unknown = shared.admin.get(f"{prefix}/nothing")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")
    assert f"{prefix}/nothing" in unknown.json()["error"]["message"]
    refused = shared.admin.delete(f"{prefix}/commands/{number}")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


def test_only_the_api_has_a_version(shared: Served) -> None:
    """Probes and pages, and the OpenAI API, whose version is its own, are at one place."""
    for path in ("/healthz", "/docs", "/openapi.json", "/v1/models", "/api/v1/whoami"):
        assert shared.admin.get(f"/api/v1{path}").status_code == 404, path


def test_references_and_ids() -> None:
    """Every reference leads somewhere, every operation has an id of its own, every schema is one."""
    text = whole_document()
    for target in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(text)):
        assert target in text["components"]["schemas"]
    operations = [item[method] for item in text["paths"].values() for method in item if method != "servers"]
    ids = [operation["operationId"] for operation in operations]
    assert len(ids) == len(set(ids))
    assert set(ids) >= {name for name in ROUTES if name not in ("health", "session_patch")}
    assert all(len(operation["tags"]) == 1 for operation in operations)
    for schema in text["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.fixture(scope="module")
def fuzzed(shared: Served) -> Served:
    """The server with a session and a command that the examples may hit."""
    shared.run(shared.session(), "echo", "hello")
    return shared


schema = schemathesis.openapi.from_dict(whole_document())


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # the explicit ones hold a body of 1.3 GB
    suppress_health_check=list(HealthCheck),
)
def test_no_request_breaks_the_server(case: Any, fuzzed: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever fits the document, or does not, is answered without a 5xx but 501 and 502, and nothing goes wrong."""
    case.query = {name: value for name, value in (case.query or {}).items() if name not in PATIENCE}
    if case.path.endswith("/wait?timeout=100"):
        case.query["timeout"] = 0.1
    asked = case.as_transport_kwargs(base_url=fuzzed.url, headers=dict(fuzzed.admin.headers))
    with caplog.at_level(logging.ERROR), requests.request(**asked, stream=True, timeout=100) as response:
        assert response.status_code < 500 or response.status_code in (501, 502), response.text
        if response.status_code >= 400:
            assert set(response.json()["error"]) >= {"code", "message", "retryable"}
        elif response.headers["content-type"] == "application/json":  # of the others, some never end
            response.json()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_the_server_is_alive_afterwards(shared: Served) -> None:
    """After all of it, it works."""
    assert answered(shared.admin.get("/readyz"), 200)["ok"] is True
