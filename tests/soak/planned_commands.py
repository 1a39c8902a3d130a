"""What is submitted, and what must come of each command."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from debug_server.model import ExitReason, Limits
from tests.soak import child

_CHILD = str(Path(child.__file__).resolve())
_QUICK = 'echo "$1" >> "$2"; exit "$3"'
_SLEEPER = 'echo "$1" >> "$2"; echo begin; sleep "$3"; echo end >&2'


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFiles:
    """The files in which children note that they ran."""

    journal: Path  # one line for each start of a command
    progress: Path  # a file for each command that hangs: how much it has written

    @classmethod
    def below(cls, root: Path) -> TraceFiles:
        """Made, in ``root``."""
        traces = cls(journal=root / "journal", progress=root / "progress")
        traces.journal.touch()
        traces.progress.mkdir(exist_ok=True)
        return traces


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCommand:
    """One command and its outcome when nothing but servers is killed."""

    token: int
    kind: str
    argv: tuple[str, ...]
    limits: Limits
    reason: ExitReason
    code: int | None = None
    stdout: bytes | None = None  # None: what the seed says
    stderr: bytes | None = None
    seed: int = 0
    cancelled: bool = False  # the campaign also asks for its end

    def written(self) -> dict[str, bytes]:
        """What the child writes on each stream when it comes to its end."""
        if self.stdout is not None and self.stderr is not None:
            return {"stdout": self.stdout, "stderr": self.stderr}
        found = {1: bytearray(), 2: bytearray()}
        for fd, data, _ in child.pieces(self.seed):
            found[fd] += data
        return {"stdout": bytes(found[1]), "stderr": bytes(found[2])}


class CommandPlanner:
    """Draws commands of all kinds from one random stream."""

    def __init__(self, draw: random.Random, traces: TraceFiles) -> None:
        self._draw = draw
        self._traces = traces
        self._kinds: dict[str, tuple[int, Callable[[int], PlannedCommand]]] = {
            "quick": (20, self._quick),
            "sleeper": (20, self._sleeper),
            "write": (26, self._writer),
            "family": (6, self._writer),
            "escape": (10, self._writer),
            "signal": (4, self._writer),
            "hang": (8, self._writer),
            "missing": (3, self._missing),
        }
        self.commands: list[PlannedCommand] = []

    def next(self) -> PlannedCommand:
        """The next command."""
        weights = [weight for weight, _ in self._kinds.values()]
        kind = self._draw.choices(list(self._kinds), weights)[0]
        self._kind = kind
        command = self._kinds[kind][1](len(self.commands) + 1)
        self.commands.append(command)
        return command

    def _quick(self, token: int) -> PlannedCommand:
        code = self._draw.choice([0, 0, 3])
        return PlannedCommand(
            token=token,
            kind=self._kind,
            argv=("sh", "-c", _QUICK, "sh", str(token), str(self._traces.journal), str(code)),
            limits=self._limits(),
            reason=_by_code(code),
            code=code,
            stdout=b"",
            stderr=b"",
        )

    def _sleeper(self, token: int) -> PlannedCommand:
        seconds = f"{self._draw.uniform(0.05, 1.5):.3f}"
        return PlannedCommand(
            token=token,
            kind=self._kind,
            argv=("sh", "-c", _SLEEPER, "sh", str(token), str(self._traces.journal), seconds),
            limits=self._limits(),
            reason=ExitReason.EXITED,
            code=0,
            stdout=b"begin\n",
            stderr=b"end\n",
            cancelled=self._draw.random() < 0.15,
        )

    def _writer(self, token: int) -> PlannedCommand:
        seed, code = self._draw.getrandbits(32), self._draw.choice([0, 0, 0, 5])
        reason, limits = _by_code(code), self._limits()
        if self._kind == "hang":
            reason, limits = ExitReason.TIMED_OUT, Limits(wall_seconds=round(self._draw.uniform(0.1, 0.8), 3))
        elif self._kind == "signal":
            reason = ExitReason.SIGNALED
        progress = str(self._traces.progress / str(token))
        journal = str(self._traces.journal)
        return PlannedCommand(
            token=token,
            kind=self._kind,
            argv=(sys.executable, "-I", "-S", _CHILD, self._kind, str(seed), str(token), journal, progress, str(code)),
            limits=limits,
            reason=reason,
            code=code if reason in (ExitReason.EXITED, ExitReason.NONZERO_EXIT) else None,
            seed=seed,
        )

    def _missing(self, token: int) -> PlannedCommand:
        return PlannedCommand(
            token=token,
            kind=self._kind,
            argv=("debug-server-soak-has-no-such-program",),
            limits=self._limits(),
            reason=ExitReason.SPAWN_FAILED,
            stdout=b"",
            stderr=b"",
        )

    def _limits(self) -> Limits:
        """None, groups, or a limit per process: each is another way to start a command."""
        return self._draw.choice(
            [Limits(), Limits(), Limits(pids=64, memory_bytes=512 << 20), Limits(open_files=256, wall_seconds=60)]
        )


def _by_code(code: int) -> ExitReason:
    return ExitReason.NONZERO_EXIT if code else ExitReason.EXITED
