"""Which executor does a task: the configured one, or docker for tasks in its mode."""

from __future__ import annotations

from pathlib import Path

from debug_server.config.tasks import TasksConfig
from debug_server.errors import ConfigurationError
from debug_server.tasks.executors.base import Executor, Plan
from debug_server.tasks.executors.codex import CodexExecutor
from debug_server.tasks.executors.docker import DockerExecutor
from debug_server.tasks.executors.mock import MockExecutor
from debug_server.tasks.executors.shell import ShellExecutor
from debug_server.tasks.models import ExecutionMode, RunnerSubmit


class Executors:
    """The executors of one server; what is configured wrongly is told when it starts."""

    def __init__(self, config: TasksConfig, cid_dir: Path) -> None:
        self.name = config.executor
        self._plain = _configured(config)
        self._docker = DockerExecutor(config, cid_dir)

    def plan(self, submit: RunnerSubmit) -> Plan:
        """The command of a task."""
        docker = submit.execution_mode is ExecutionMode.DOCKER_SANDBOX
        return (self._docker if docker else self._plain).plan(submit)


def _configured(config: TasksConfig) -> Executor:
    match config.executor:
        case "mock":
            return MockExecutor()
        case "shell":
            if config.cmd_template is None:
                raise ConfigurationError("shell executor requires HOST_RUNNER_CMD_TEMPLATE")
            return ShellExecutor(config.cmd_template)
        case "codex":
            return CodexExecutor(config.codex_bin, config.codex_args)
    raise ConfigurationError(
        f"HOST_RUNNER_EXECUTOR {config.executor!r} is no executor: use mock, shell or codex; a task chooses docker"
    )
