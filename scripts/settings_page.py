"""Writes ``docs/settings.md`` from the declared settings."""

from __future__ import annotations

from pathlib import Path

from debug_server.config import settings_page

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"


def main() -> None:
    """Write the page."""
    PAGE.write_text(settings_page())


if __name__ == "__main__":
    main()
