"""The executors of tasks: mock, shell or codex as configured, and docker for tasks in its mode."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Protocol

from debug_server.config.tasks import TasksConfig
from debug_server.errors import ConfigurationError
from debug_server.messages.tasks import ExecutionMode, RunnerSubmit
from debug_server.tasks.docker_executor import DockerExecutor
from debug_server.tasks.task_command import TaskCommand, inherited, task_variables
from debug_server.tasks.template import render

# The pauses read a pipe that nobody writes to, with a timeout: ten processes of sleep(1) would cost more.
_MOCK_SCRIPT = "exec 3<> <(:); for i in {1..10}; do read -r -t 0.03 -u 3; done; exec cat"
_CODEX_VARIABLES = (
    *("CODEX_HOME", "CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)


class Executor(Protocol):
    """Makes the command of a task."""

    def command(self, submit: RunnerSubmit) -> TaskCommand:
        """The command; InvalidInputError names a field whose value is too large."""


class MockExecutor:
    """Ten pauses of 30 ms, then the prompt on stdout and exit status 0; for orchestrators under development."""

    def command(self, submit: RunnerSubmit) -> TaskCommand:
        """A short bash script."""
        argv = ["/bin/bash", "--norc", "--noprofile", "-c", _MOCK_SCRIPT]
        env = task_variables(submit, prompt=False)
        return TaskCommand(executor="mock", argv=argv, env=env, stdin_text=submit.prompt)


class ShellExecutor:
    """``bash -lc`` of the operator's template; the values are in the environment, never in the script."""

    def __init__(self, template: str) -> None:
        self._script = render(template)

    def command(self, submit: RunnerSubmit) -> TaskCommand:
        """The same script for every task."""
        env = task_variables(submit, prompt=True)
        return TaskCommand(executor="shell", argv=["bash", "-lc", self._script], env=env)


class CodexExecutor:
    """``<bin> exec <args> -``: the prompt is on stdin, where its length has no limit."""

    def __init__(self, program: str, arguments: str) -> None:
        self._program = program
        try:
            self._arguments = shlex.split(arguments)
        except ValueError as error:
            raise ConfigurationError(f"HOST_RUNNER_CODEX_ARGS {arguments!r} cannot be split: {error}") from error

    def command(self, submit: RunnerSubmit) -> TaskCommand:
        """The program is looked up here, so that a ``codex`` in the worktree is never run."""
        argv = [shutil.which(self._program) or self._program, "exec", *self._arguments, "-"]
        env = {**task_variables(submit, prompt=False), **inherited(_CODEX_VARIABLES)}
        return TaskCommand(executor="codex", argv=argv, env=env, stdin_text=submit.prompt)


class Executors:
    """The executors of one server; ConfigurationError if the configured one cannot be used."""

    def __init__(self, config: TasksConfig, containers_dir: Path) -> None:
        self.name = config.executor
        self._configured = _configured(config)
        self._docker = DockerExecutor(config, containers_dir)

    def command(self, submit: RunnerSubmit) -> TaskCommand:
        """The command of a task, by the configured executor or by docker."""
        docker = submit.execution_mode is ExecutionMode.DOCKER_SANDBOX
        return (self._docker if docker else self._configured).command(submit)


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
        f"HOST_RUNNER_EXECUTOR {config.executor!r} is unknown: use mock, shell or codex "
        "(a task with execution_mode docker-sandbox uses docker)"
    )
