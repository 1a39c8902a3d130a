"""What to run: one command with its environment and limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from debug_server.errors import InvalidInputError
from debug_server.model.command import Command
from debug_server.model.isolation import Level, Network, check_isolation
from debug_server.model.limits import Limits
from debug_server.model.lists import check_argv, check_list
from debug_server.model.names import check_name
from debug_server.model.new_command import SpecColumns
from debug_server.model.plans import CommandPlan, WorkerIdentity

_MIN_SECRET_BYTES = 4
_MAX_ARGUMENT = 131_071  # the kernel's bound on one argument or variable, less its final NUL


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """One command: its program, environment, directory and limits."""

    argv: Sequence[str]
    env: Mapping[str, str] | None = None
    cwd: Path | None = None  # inside the workspace; relative to it, or absolute
    log_name: str = "command"
    timeout: float | None = None  # short for limits.wall_seconds
    limits: Limits = field(default_factory=Limits, kw_only=True)
    require: Sequence[str] = field(default=(), kw_only=True)  # refuse the command unless these limits are enforced
    isolation: Level | None = field(default=None, kw_only=True)  # a level; None: the default for its workspace
    network: Network | None = field(default=None, kw_only=True)  # a policy; None: the default
    tty: bool = field(default=False, kw_only=True)
    stdin: bool = field(default=False, kw_only=True)  # a pipe to write to; otherwise /dev/null
    stdin_text: str | None = field(default=None, kw_only=True)  # the complete stdin, instead of a pipe
    wrapper: Sequence[str] = field(default=(), kw_only=True)  # run the command under this program
    pre_kill: Sequence[str] = field(default=(), kw_only=True)  # run before its process tree is killed
    secrets: Sequence[str] = field(default=(), kw_only=True)  # variables of ``env`` whose values are masked in the log
    containers: bool = field(default=False, kw_only=True)  # it starts containers: its control groups stay writable
    relay: bool = field(default=False, kw_only=True)  # stdout goes to a client of the keeper instead of the log
    orphan_seconds: float | None = field(default=None, kw_only=True)  # end a relay after so long without a client

    def __post_init__(self) -> None:
        check_argv(self.argv)
        for name in ("require", "wrapper", "pre_kill", "secrets"):
            check_list(getattr(self, name), what=name)
        if not self.argv or not self.argv[0]:
            raise InvalidInputError("argv is empty: name the program to run")
        for text in [*self.argv, *self.wrapper]:
            _check_argument(text, what="argument")
        for name, value in (self.env or {}).items():
            if not name or "=" in name or "\0" in name:
                raise InvalidInputError(f"environment variable {name!r}: must have a name, without '=' and NUL")
            _check_argument(value, what=f"environment variable {name}")
        for name in self.secrets:
            _check_secret(name, self.env or {})
        check_name(self.log_name, what="log name")
        check_isolation(self.isolation, self.network)
        if self.stdin_text is not None and (self.stdin or self.tty):
            raise InvalidInputError("stdin is a string, a pipe or a terminal: set one of stdin_text, stdin and tty")

    @property
    def effective_limits(self) -> Limits:
        """The limits, with ``timeout`` as ``wall_seconds``."""
        if self.timeout is None:
            return self.limits
        return dataclasses.replace(self.limits, wall_seconds=self.timeout)

    def with_default_limits(self, defaults: Limits) -> CommandSpec:
        """The same spec, with ``defaults`` for the limits that it does not set."""
        if not (asked := defaults.requested()):
            return self
        limits = Limits.from_json({**asked, **self.effective_limits.requested()})
        return dataclasses.replace(self, limits=limits, timeout=None)

    def to_columns(
        self,
        *,
        inline: bool = False,
        worker: WorkerIdentity | None = None,
        closes_session: bool = False,
        artifacts: Sequence[str] = (),
    ) -> SpecColumns:
        """The columns that the store keeps, with a plan for the engine; ``from_command`` is the inverse."""
        plan = CommandPlan(
            inline=inline,
            worker=worker,
            closes_session=closes_session,
            artifacts=tuple(artifacts),
            require=tuple(self.require),
            isolation=self.isolation,
            network=self.network,
            stdin=self.stdin,
            wrapper=tuple(self.wrapper),
            pre_kill=tuple(self.pre_kill),
            secrets=tuple(self.secrets),
            containers=self.containers,
            relay=self.relay,
            orphan_seconds=self.orphan_seconds,
        )
        return {
            "argv": self.argv,
            "cwd": str(self.cwd) if self.cwd is not None else None,
            "env": self.env,
            "log_name": self.log_name,
            "limits": self.effective_limits,
            "stdin_text": self.stdin_text,
            "tty": self.tty,
            "plan": plan,
        }

    @classmethod
    def from_command(cls, command: Command, env: Mapping[str, str], stdin_text: str | None = None) -> CommandSpec:
        """The spec of a stored command."""
        plan = command.plan
        return cls(
            command.argv,
            env,
            Path(command.cwd) if command.cwd else None,
            command.log_name,
            limits=command.limits,
            tty=command.tty,
            stdin_text=stdin_text,
            require=plan.require,
            isolation=plan.isolation,
            network=plan.network,
            stdin=plan.stdin,
            wrapper=plan.wrapper,
            pre_kill=plan.pre_kill,
            secrets=plan.secrets,
            containers=plan.containers,
            relay=plan.relay,
            orphan_seconds=plan.orphan_seconds,
        )


def _check_secret(name: str, env: Mapping[str, str]) -> None:
    if name not in env:
        raise InvalidInputError(f"secret {name!r} is not a variable of the command: set it in env")
    if len(env[name].encode("utf-8", "surrogateescape")) < _MIN_SECRET_BYTES:
        raise InvalidInputError(
            f"secret {name!r} has fewer than {_MIN_SECRET_BYTES} bytes: too short to mask without masking other output"
        )


def _check_argument(text: str, *, what: str) -> None:
    """Refuse what the kernel cannot pass to a program."""
    if not isinstance(text, str):
        raise InvalidInputError(f"{what} {text!r} must be text")
    if "\0" in text:
        raise InvalidInputError(f"{what} {text[:40]!r} contains a NUL byte, which no program can receive")
    if len(text.encode("utf-8", "surrogateescape")) > _MAX_ARGUMENT:
        raise InvalidInputError(
            f"{what} {text[:40]!r}… is longer than {_MAX_ARGUMENT} bytes: pass it in a file or on stdin"
        )
