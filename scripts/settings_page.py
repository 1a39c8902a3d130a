"""Writes ``docs/settings.md`` and ``.env.example`` from the declared settings."""

from __future__ import annotations

from pathlib import Path

from debug_server.config import env_example, settings_page

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Write both."""
    (ROOT / "docs" / "settings.md").write_text(settings_page())
    (ROOT / ".env.example").write_text(env_example())


if __name__ == "__main__":
    main()
