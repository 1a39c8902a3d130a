"""One call of the program: its global options, and what the commands get from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from debug_server.errors import DebugServerError
from debug_server.surfaces.cli.parts import OpenLocal
from debug_server.surfaces.cli.standard_streams import tell_plainly

if TYPE_CHECKING:  # loaded by the commands that need them: the help and `run` start without
    from debug_server.surfaces.cli.backend import Backend
    from debug_server.surfaces.cli.connection import Connection
    from debug_server.surfaces.cli.output import Output

Serve = Callable[..., int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """What only the composition root can start."""

    open_local: OpenLocal
    serve: Serve
    serve_gateway: Serve
    mcp: Callable[[], int]
    mcp_bridge: Serve


@dataclass(slots=True, kw_only=True)
class Invocation:
    """The global options, as given."""

    programs: Programs
    flags: dict[str, Any]
    as_json: bool = False
    local: bool = False  # no server, whatever is configured

    def connection(self) -> Connection:
        """The server to speak to."""
        from debug_server.surfaces.cli.connection import Connection, find_connection

        return Connection() if self.local else find_connection(self.flags)

    def backend(self) -> Backend:
        """Whoever does the work; a context manager."""
        from debug_server.surfaces.cli.backend import open_backend

        return open_backend(self.connection(), self.programs.open_local)

    def output(self) -> Output:
        """Where the answer goes."""
        from debug_server.surfaces.cli.output import Output

        return Output(as_json=self.as_json)

    def report(self, error: DebugServerError) -> int:
        """One line on stderr; returns the exit status."""
        from debug_server.service.errors_table import mapping_of
        from debug_server.surfaces.cli.output import harmless

        if self.as_json:
            text = json.dumps({"error": {"code": error.code, "message": str(error)}})
        else:
            text = harmless(f"debug-server: {error}")
        tell_plainly(text)
        return mapping_of(error).exit_status


def invocation(context: typer.Context) -> Invocation:
    """The one behind a command's context."""
    found = context.find_root().obj
    assert isinstance(found, Invocation)
    return found
