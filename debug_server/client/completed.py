"""A command that ``run`` of a client has run to its end."""

from __future__ import annotations

import secrets
import shlex
import time
from dataclasses import dataclass, replace
from typing import Self

from debug_server.client.calls import Call
from debug_server.errors import CommandFailedError, UnavailableError, UnreachableError
from debug_server.messages import ExecReply

_SHOWN_BYTES = 2000  # of the output in an error's message
_RECONNECT_SECONDS = 120.0  # how long a run that has begun waits for a server that does not answer


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Completed:
    """How a command ended, and its output.

    ``stdout`` and ``stderr`` are text, ``stdout_data`` and ``stderr_data`` exact bytes. If output is long, they have
    its beginning and its end, ``truncated`` is true, and the text says what is left out; the log has everything, and
    ``client.stored_log(command_id)`` reads it.
    """

    argv: tuple[str, ...]
    reply: ExecReply  # the whole answer of the server

    def __repr__(self) -> str:
        return (
            f"Completed(argv={self.argv!r}, command_id={self.command_id}, exit_code={self.exit_code}, "
            f"exit_reason={self.exit_reason!r})"
        )

    @property
    def command_id(self) -> int:
        """The command's id."""
        return self.reply.command_id

    @property
    def session_id(self) -> int:
        """The id of the session that it ran in."""
        return self.reply.session_id

    @property
    def exit_code(self) -> int | None:
        """The status that it exited with; None if something else ended it, such as a signal or a limit."""
        return self.reply.exit_code

    @property
    def exit_reason(self) -> str:
        """Why it ended: ``exited``, ``nonzero_exit``, ``timed_out``, …"""
        return self.reply.exit_reason or ""

    @property
    def message(self) -> str:
        """How it ended, as a sentence."""
        return self.reply.message or ""

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return self.reply.wall_seconds or 0.0

    @property
    def ok(self) -> bool:
        """Whether it exited with status 0."""
        return self.reply.status == "succeeded"

    @property
    def stdout(self) -> str:
        """What it wrote to stdout."""
        return self._text("stdout", self.reply.stdout, self.reply.stdout_tail)

    @property
    def stderr(self) -> str:
        """What it wrote to stderr."""
        return self._text("stderr", self.reply.stderr, self.reply.stderr_tail)

    @property
    def stdout_data(self) -> bytes:
        """The bytes that it wrote to stdout."""
        return self.reply.stdout + self.reply.stdout_tail

    @property
    def stderr_data(self) -> bytes:
        """The bytes that it wrote to stderr."""
        return self.reply.stderr + self.reply.stderr_tail

    @property
    def truncated(self) -> bool:
        """Whether a part of the output is left out."""
        return bool(self.reply.left_out)

    def check(self) -> Self:
        """Return this command; CommandFailedError if it did not exit with status 0."""
        if self.ok:
            return self
        end = (self.stderr_data or self.stdout_data)[-_SHOWN_BYTES:].decode("utf-8", "replace").strip()
        failed = f"command {self.command_id} ({shlex.join(self.argv):.200}) failed: {self.message or self.exit_reason}"
        raise CommandFailedError(f"{failed}\n{end}" if end else failed)

    def _text(self, stream: str, head: bytes, tail: bytes) -> str:
        text = head.decode("utf-8", "replace")
        for part in self.reply.left_out:
            if part.stream == stream:
                note = f"{part.bytes} bytes left out: offsets {part.start} to {part.end} of the log"
                text += f"\n[{note}]\n{tail.decode('utf-8', 'replace')}"
        return text


class RunInProgress:
    """A run, independent of the client that sends its requests."""

    def __init__(self, call: Call[ExecReply]) -> None:
        self.call = replace(call, key=call.key or secrets.token_hex(16))
        self.reply: ExecReply | None = None  # the last one
        self._may_have_begun = False
        self._away_since: float | None = None  # the first request without an answer

    @property
    def ended(self) -> bool:
        """Whether the command has ended."""
        return self.reply is not None and self.reply.ended

    def take(self, reply: ExecReply) -> None:
        """Take the answer to one request."""
        self.reply, self._away_since = reply, None

    def interrupted(self, error: UnavailableError) -> None:
        """Raise the error, unless the command may have begun and the server may be starting again."""
        self._may_have_begun |= isinstance(error, UnreachableError) and error.connected
        self._away_since = self._away_since or time.monotonic()
        begun = self._may_have_begun or self.reply is not None
        if not begun or time.monotonic() > self._away_since + _RECONNECT_SECONDS:
            raise error

    def wait_for(self, seconds: float) -> None:
        """Let the next request wait so long."""
        self.call = replace(self.call, fields={**self.call.fields, "wait": seconds})

    @property
    def completed(self) -> Completed:
        """The command, once it has ended."""
        assert self.reply is not None
        return Completed(argv=tuple(self.call.fields["argv"]), reply=self.reply)
