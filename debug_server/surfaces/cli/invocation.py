"""One invocation of the program: its global options, and the objects that commands create from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from debug_server.errors import DebugServerError
from debug_server.surfaces.cli.parts import OpenLocal
from debug_server.surfaces.cli.standard_streams import write_stderr

if TYPE_CHECKING:  # loaded by the commands that need them: the help and `run` start without
    from debug_server.client.connection import ServerSettings
    from debug_server.surfaces.cli.backend import Backend
    from debug_server.surfaces.cli.output import Output

Serve = Callable[..., int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The functions of the composition root that commands call."""

    open_local: OpenLocal
    serve: Serve
    serve_gateway: Serve
    mcp: Callable[[str], int]
    mcp_bridge: Serve


@dataclass(slots=True, kw_only=True)
class Invocation:
    """The global options, as given."""

    programs: Programs
    flags: dict[str, Any]
    as_json: bool = False
    local: bool = False  # no server, whatever is configured
    _address_told: bool = False  # that only a token is set

    def server_settings(self) -> ServerSettings:
        """The server to speak to."""
        from debug_server.client.connection import ServerSettings, load_server_settings
        from debug_server.surfaces.cli.output import print_notice

        if self.local:
            return ServerSettings()
        found = load_server_settings(self.flags)
        if found.base_url is None and found.server is not None and not self._address_told:
            self._address_told = True
            print_notice(f"a token is set without an address: using {found.server}; set DEBUG_SERVER_URL or --base-url")
        return found

    def backend(self) -> Backend:
        """The configured server, or the service in this process; a context manager."""
        from debug_server.surfaces.cli.backend import open_backend

        return open_backend(self.server_settings(), self.programs.open_local)

    def output(self) -> Output:
        """The output for results."""
        from debug_server.surfaces.cli.output import Output

        return Output(as_json=self.as_json)

    def report(self, error: DebugServerError) -> int:
        """One line on stderr; returns the exit status."""
        from debug_server.service.errors_table import mapping_of
        from debug_server.surfaces.cli.output import error_line

        write_stderr(error_line(error, as_json=self.as_json))
        return mapping_of(error).exit_status


def invocation(context: typer.Context) -> Invocation:
    """The invocation of a command's context."""
    found = context.find_root().obj
    assert isinstance(found, Invocation)
    return found
