"""The program ``debug-server``."""

from __future__ import annotations

import os
import signal
import sys
from importlib.util import find_spec

_INTERRUPTED = 130


def main(name: str = "debug-server") -> None:
    """Entry point."""
    # Until a command begins there is nothing to end or to tell: modules are being loaded, and an exception raised among
    # them would show where. The command line sets it back. A shell's background job ignores SIGINT: so does this then.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from debug_server.surfaces.cli.dropped import send_dropped_again
    from debug_server.surfaces.cli.standard_streams import ensure_standard_streams

    ensure_standard_streams()  # before anything opens a file
    send_dropped_again()  # before the rest is loaded: that is when most of them would be dropped
    if find_spec("typer") is None:
        sys.exit(
            f"debug-server: its packages are not installed in {sys.executable}: in a checkout, run `make setup` first"
        )
    from debug_server.app.programs import command_line

    command_line(name)


def sashi() -> None:
    """The same program under the name that operators of boards know."""
    main("sashi")


def _leave(_: int, __: object) -> None:
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
