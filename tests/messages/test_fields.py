"""The meanings of fields."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from debug_server import messages
from debug_server.messages import tasks
from debug_server.messages.base import Request
from debug_server.messages.faults import validated
from debug_server.messages.fields import field_docs
from debug_server.messages.operations import OPERATIONS
from debug_server.messages.task_operations import TASK_OPERATIONS


def requests() -> Iterator[type[BaseModel]]:
    """Every request, and every message inside one."""
    for row in (*OPERATIONS.values(), *TASK_OPERATIONS.values()):
        yield row.request
    yield from (messages.LimitsRequest, tasks.RunnerWorkspace, tasks.RunnerSandbox, tasks.RunnerMount)


def test_examples_are_valid() -> None:
    """A request made of the examples of its fields is accepted, whatever its kind."""
    docs = field_docs()
    for kind in requests():
        given = {}
        for name in kind.model_fields:
            doc = docs.get(f"{kind.__name__}.{name}") or docs.get(name)
            if doc is not None and doc.example is not None:
                given[name] = doc.example
        assert isinstance(validated(kind, given), Request), kind


def test_descriptions_are_sentences() -> None:
    """Each begins with a capital letter, a name or a quote, and ends with a full stop."""
    for name, doc in field_docs().items():
        assert doc.about.endswith("."), name
        assert len(doc.about) < 120, name
