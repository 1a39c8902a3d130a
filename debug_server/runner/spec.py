"""What to run, and what came of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from debug_server.errors import InvalidInputError
from debug_server.model import (
    Command,
    CommandPlan,
    CommandStatus,
    ExitReason,
    ExitRecord,
    Limits,
    WorkerIdentity,
    check_argv,
    check_list,
    check_name,
)

_SHORTEST_SECRET = 4
_MAX_ARGUMENT = 131_071  # the kernel's bound on one argument or variable, less its final NUL


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """One command: program, surroundings, bounds."""

    argv: Sequence[str]
    env: Mapping[str, str] | None = None
    cwd: Path | None = None  # inside the workspace; relative to it, or absolute
    log_name: str = "command"
    timeout: float | None = None  # shorthand for limits.wall_seconds
    limits: Limits = field(default_factory=Limits, kw_only=True)
    require: Sequence[str] = field(default=(), kw_only=True)  # limits that must really be enforced
    tty: bool = field(default=False, kw_only=True)
    stdin: bool = field(default=False, kw_only=True)  # a pipe to write to; otherwise /dev/null
    stdin_text: str | None = field(default=None, kw_only=True)  # all of its stdin, known from the start
    wrapper: Sequence[str] = field(default=(), kw_only=True)  # run the command under this program
    pre_kill: Sequence[str] = field(default=(), kw_only=True)  # run beside the tree before it is ended
    secrets: Sequence[str] = field(default=(), kw_only=True)  # variables of ``env`` whose values the log must not hold
    containers: bool = field(default=False, kw_only=True)  # it makes containers: control groups stay writable for it
    relay: bool = field(default=False, kw_only=True)  # stdout goes to a client of the keeper instead of the log
    orphan_seconds: float | None = field(default=None, kw_only=True)  # a relay without a client is ended after them

    def __post_init__(self) -> None:
        check_argv(self.argv)
        for name in ("require", "wrapper", "pre_kill", "secrets"):
            check_list(getattr(self, name), what=name)
        if not self.argv or not self.argv[0]:
            raise InvalidInputError("argv is empty: name the program to run")
        for text in [*self.argv, *self.wrapper]:
            check_argument(text, what="argument")
        for name, value in (self.env or {}).items():
            if not name or "=" in name or "\0" in name:
                raise InvalidInputError(f"environment variable {name!r} has no usable name")
            check_argument(value, what=f"environment variable {name}")
        for name in self.secrets:
            _check_secret(name, self.env or {})
        check_name(self.log_name, what="log name")
        if self.stdin_text is not None and (self.stdin or self.tty):
            raise InvalidInputError("stdin is a text, a pipe or a terminal: choose one")

    @property
    def bounds(self) -> Limits:
        """The limits with ``timeout`` folded in."""
        if self.timeout is None:
            return self.limits
        return dataclasses.replace(self.limits, wall_seconds=self.timeout)

    def within(self, defaults: Limits) -> CommandSpec:
        """The same with ``defaults`` for the limits that it does not set itself."""
        if not (asked := defaults.asked()):
            return self
        limits = Limits.from_json({**asked, **self.bounds.asked()})
        return dataclasses.replace(self, limits=limits, timeout=None)

    def plan(
        self,
        *,
        inline: bool = False,
        worker: WorkerIdentity | None = None,
        closes_session: bool = False,
        artifacts: Sequence[str] = (),
    ) -> CommandPlan:
        """What the commands table has no other column for, with what the engine has to know."""
        return CommandPlan(
            inline=inline,
            worker=worker,
            closes_session=closes_session,
            artifacts=tuple(artifacts),
            require=tuple(self.require),
            stdin=self.stdin,
            wrapper=tuple(self.wrapper),
            pre_kill=tuple(self.pre_kill),
            secrets=tuple(self.secrets),
            containers=self.containers,
            relay=self.relay,
            orphan_seconds=self.orphan_seconds,
        )

    @classmethod
    def from_command(cls, command: Command, env: Mapping[str, str], stdin_text: str | None = None) -> CommandSpec:
        """The spec that a stored command was made from."""
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
        raise InvalidInputError(f"secret {name!r} is no variable of the command: set it in env")
    if len(env[name].encode("utf-8", "surrogateescape")) < _SHORTEST_SECRET:
        raise InvalidInputError(
            f"secret {name!r} has fewer than {_SHORTEST_SECRET} bytes: so short a text cannot be told from other output"
        )


def check_argument(text: str, *, what: str) -> None:
    """Refuse what the kernel cannot carry."""
    if not isinstance(text, str):
        raise InvalidInputError(f"{what} {text!r} must be text")
    if "\0" in text:
        raise InvalidInputError(f"{what} {text[:40]!r} contains a NUL byte, which no program can receive")
    if len(text.encode("utf-8", "surrogateescape")) > _MAX_ARGUMENT:
        raise InvalidInputError(
            f"{what} {text[:40]!r}… is longer than {_MAX_ARGUMENT} bytes: pass it in a file or on stdin"
        )


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What came of a command."""

    command_id: int
    status: CommandStatus
    exit_code: int | None
    log_path: Path
    exit: ExitRecord = field(kw_only=True)

    @property
    def exit_reason(self) -> ExitReason:
        """Why it ended."""
        return self.exit.reason
