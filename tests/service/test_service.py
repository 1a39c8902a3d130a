"""The service is made of members, and the table of operations leads to their verbs."""

from __future__ import annotations

import inspect
from pathlib import Path

from debug_server.app import Local
from debug_server.messages import OPERATIONS
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from debug_server.service import Service
from tests.running import VISIBLE


def test_every_operation_leads_to_a_verb(tmp_path: Path) -> None:
    """Each names a member and a method of it, which takes a caller and the operation's request."""
    with Local(
        RunnerSettings(RunnerPaths.from_root(tmp_path / "a"), isolation=VISIBLE), f"sqlite:///{tmp_path}/m.db"
    ) as local:
        for operation in OPERATIONS.values():
            verb = local.service.verb(operation)
            parameters = list(inspect.signature(verb).parameters.values())
            assert parameters[1].annotation in (f"m.{operation.request.__name__}", operation.request.__name__)
            assert inspect.isasyncgenfunction(verb) is operation.stream


def test_the_service_inherits_from_nothing() -> None:
    """Its parts are members."""
    assert Service.__mro__ == (Service, object)
