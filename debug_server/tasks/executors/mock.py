"""The mock executor: says the prompt after ten short pauses; for orchestrators under development, and for tests."""

from __future__ import annotations

from debug_server.tasks.executors.base import Plan, variables
from debug_server.tasks.models import RunnerSubmit

# A pipe that nobody writes to is read with a timeout: ten processes of sleep(1) would cost more than the pauses.
_SCRIPT = "exec 3<> <(:); for i in {1..10}; do read -r -t 0.03 -u 3; done; exec cat"


class MockExecutor:
    """Ten pauses of 30 ms, then the prompt on stdout and status 0."""

    def plan(self, submit: RunnerSubmit) -> Plan:
        """A few words of bash."""
        argv = ["/bin/bash", "--norc", "--noprofile", "-c", _SCRIPT]
        return Plan(executor="mock", argv=argv, env=variables(submit, prompt=False), stdin_text=submit.prompt)
