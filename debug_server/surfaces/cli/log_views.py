"""Options that show a part of a log: the last lines, the lines that match a pattern, or its digest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.errors import InvalidInputError
from debug_server.messages import LogText
from debug_server.surfaces.cli.backend import Backend
from debug_server.surfaces.cli.output import Output, print_notice, write_line

Tail = Annotated[int | None, typer.Option(help="start with the last LINES lines", metavar="LINES")]
Grep = Annotated[
    str | None, typer.Option("--grep", "-g", help="only lines that match this regular expression", metavar="PATTERN")
]
IgnoreCase = Annotated[bool, typer.Option("--ignore-case", "-i", help="ignore case in --grep")]
Context = Annotated[
    int, typer.Option("--context", "-C", help="also print this many lines before and after each match", metavar="LINES")
]
Digest = Annotated[
    bool, typer.Option("--digest", help="print the first error, failing tests, tracebacks, first and last lines")
]
MaxTokens = Annotated[int | None, typer.Option(help="the longest digest, in tokens of four characters; default 1000")]
_MATCHES, _BYTES = 1000, 1 << 20  # of one request


def refuse_together(option: str | None, others: dict[str, object]) -> None:
    """InvalidInputError if one of the ``others`` was given beside ``option``."""
    for name, given in others.items():
        if option is not None and given:
            raise InvalidInputError(f"{option} and {name} do not go together: leave one out")


def tail_start(backend: Backend, command_id: int, lines: int | None, offset: int = 0) -> int:
    """The offset of the last ``lines`` lines of a log; ``offset`` without a number of lines."""
    if lines is None:
        return offset
    found = backend.send(calls.read_log_text(command_id, tail=lines, limit=1))
    return found.offset - found.skipped_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternSearch:
    """The lines to print."""

    pattern: str
    ignore_case: bool
    context: int

    def request(self, command_id: int, offset: int) -> calls.Call[LogText]:
        """The request for the next matches."""
        return calls.read_log_text(
            command_id,
            offset=offset,
            grep=self.pattern,
            ignore_case=self.ignore_case,
            context=self.context,
            max_matches=_MATCHES,
            limit=_BYTES,
        )


def print_matches(
    backend: Backend, output: Output, command_id: int, search: PatternSearch, *, offset: int, title: str = ""
) -> bool:
    """Print the lines of a log that match, below a ``title``; False if there are none."""
    found_any, separator = False, title
    while True:
        found = backend.send(search.request(command_id, offset))
        for match in found.matches:
            if output.as_json:
                output.json({"command_id": command_id, **match.model_dump(mode="json")})
            else:
                lines = [separator] if separator else []
                write_line("\n".join([*lines, *match.before, match.text, *match.after]))
            found_any, separator = True, "--" if search.context else ""
        if found.next_offset in (offset, found.log_bytes):
            return found_any
        offset = found.next_offset


def print_digest(backend: Backend, output: Output, command_id: int, max_tokens: int | None) -> None:
    """Print the digest of a log."""
    digest = backend.send(calls.digest_log(command_id, max_tokens=max_tokens))
    output.result(digest.as_text(), digest)


def print_no_match(pattern: str) -> None:
    """Say that no line matches."""
    print_notice(f"no line matches {pattern!r}")
