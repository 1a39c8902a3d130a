"""The shell executor: the operator's template, in a login shell."""

from __future__ import annotations

from debug_server.tasks.executors.base import Plan, variables
from debug_server.tasks.models import RunnerSubmit
from debug_server.tasks.template import render


class ShellExecutor:
    """``bash -lc`` of a template; the values are in the environment and never in the script."""

    def __init__(self, template: str) -> None:
        self._script = render(template)

    def plan(self, submit: RunnerSubmit) -> Plan:
        """The same script for every task."""
        return Plan(executor="shell", argv=["bash", "-lc", self._script], env=variables(submit, prompt=True))
