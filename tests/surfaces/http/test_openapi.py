"""The OpenAPI document: complete, sound, and kept under fire."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from starlette.routing import Route, WebSocketRoute

from debug_server.app.parts import TASKS
from debug_server.messages import ROUTES
from debug_server.surfaces.http.openapi import document
from debug_server.surfaces.http.tasks import TasksPart
from tests.servers import unmount_below
from tests.surfaces.http.serving import Served, answered

EXAMPLES = 8
UNDOCUMENTED = {"/openapi.json"}
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


def test_every_route_is_documented(shared: Served) -> None:
    """What the application answers and what the document says are the same paths and methods."""
    served = {
        (path, method.lower())
        for route in shared.app.routes
        if isinstance(route, Route) and (path := route.path) not in UNDOCUMENTED
        for method in (route.methods or set()) - {"HEAD"}
    }
    written = answered(shared.admin.get("/openapi.json"), 200)
    assert written["openapi"].startswith("3.1")
    assert served == {(path, method) for path, item in written["paths"].items() for method in item}
    assert len([route for route in shared.app.routes if isinstance(route, WebSocketRoute)]) == 4


def test_references_and_ids() -> None:
    """Every reference leads somewhere, every operation has an id of its own, every schema is one."""
    text = whole_document()
    for target in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(text)):
        assert target in text["components"]["schemas"]
    ids = [operation["operationId"] for item in text["paths"].values() for operation in item.values()]
    assert len(ids) == len(set(ids))
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
