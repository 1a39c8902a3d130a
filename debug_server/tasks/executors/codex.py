"""The codex executor: ``codex exec``, the prompt on its stdin."""

from __future__ import annotations

import shlex
import shutil

from debug_server.errors import ConfigurationError
from debug_server.tasks.executors.base import Plan, passed_on, variables
from debug_server.tasks.models import RunnerSubmit

_PASSED_ON = (
    *("CODEX_HOME", "CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)


class CodexExecutor:
    """``<bin> exec <args> -``: a prompt on stdin has no length that a command line could not hold."""

    def __init__(self, program: str, arguments: str) -> None:
        self._program = program
        try:
            self._arguments = shlex.split(arguments)
        except ValueError as error:
            raise ConfigurationError(f"HOST_RUNNER_CODEX_ARGS {arguments!r} cannot be read: {error}") from error

    def plan(self, submit: RunnerSubmit) -> Plan:
        """Found now: a worktree's own ``codex`` must not be taken for it."""
        argv = [shutil.which(self._program) or self._program, "exec", *self._arguments, "-"]
        env = {**variables(submit, prompt=False), **passed_on(_PASSED_ON)}
        return Plan(executor="codex", argv=argv, env=env, stdin_text=submit.prompt)
