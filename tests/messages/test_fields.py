"""The meanings of fields."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from debug_server import messages
from debug_server.errors import InvalidInputError
from debug_server.messages import tasks
from debug_server.messages.faults import validated
from debug_server.messages.fields import doc_of, field_docs
from debug_server.messages.operations import OPERATIONS
from debug_server.messages.task_operations import TASK_OPERATIONS


def requests() -> Iterator[type[BaseModel]]:
    """Every request, and every message inside one."""
    for row in (*OPERATIONS.values(), *TASK_OPERATIONS.values()):
        yield row.request
    yield from (messages.LimitsRequest, tasks.RunnerWorkspace, tasks.RunnerSandbox, tasks.RunnerMount)


def test_examples_are_valid() -> None:
    """Each example is a valid value of its field, in every request that has the field."""
    for kind in requests():
        for name in kind.model_fields:
            doc = doc_of(kind.__name__, name)
            if doc is not None and doc.example is not None:
                assert name not in wrong_fields(kind, {name: doc.example}), (kind, name)


def wrong_fields(kind: type[BaseModel], fields: dict[str, object]) -> set[str]:
    """What is wrong with these fields; other fields may be missing."""
    try:
        validated(kind, fields)
    except InvalidInputError as error:
        return {one.field.partition(".")[0] for one in error.violations}
    return set()


def test_descriptions_are_sentences() -> None:
    """Each begins with a capital letter, a name or a quote, and ends with a full stop."""
    for name, doc in field_docs().items():
        assert doc.about.endswith("."), name
        assert len(doc.about) < 120, name
