"""Writes ``docs/settings.md``, ``.env.example`` and the limits in ``config/runner.toml`` from what is declared."""

from __future__ import annotations

from pathlib import Path

from debug_server.config.page import env_example, settings_page, with_limits

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Write the three files."""
    (ROOT / "docs" / "settings.md").write_text(settings_page())
    (ROOT / ".env.example").write_text(env_example())
    runner = ROOT / "config/runner.toml"
    runner.write_text(with_limits(runner.read_text()))


if __name__ == "__main__":
    main()
