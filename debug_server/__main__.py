"""The program ``debug-server``."""

from __future__ import annotations

from debug_server.app import Local
from debug_server.surfaces.cli.main import run_cli


def main() -> None:
    """Entry point."""
    run_cli(Local.open)


if __name__ == "__main__":
    main()
