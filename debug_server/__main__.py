"""The program ``debug-server``."""

from __future__ import annotations

from debug_server.surfaces.cli.dropped import send_dropped_again


def main(name: str = "debug-server") -> None:
    """Entry point."""
    send_dropped_again()  # before the rest is loaded: that is when most of them would be dropped
    from debug_server.app.programs import command_line

    command_line(name)


def sashi() -> None:
    """The same program under the name that operators of boards know."""
    main("sashi")


if __name__ == "__main__":
    main()
