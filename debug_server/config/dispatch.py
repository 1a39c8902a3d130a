"""The settings of dispatch that are not in ``runners.yml`` or ``repos.yml``: where those are, and a secret."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from debug_server.config.declare import Derived, setting
from debug_server.config.kinds import PATH, TEXT

HOOK_SECRET = "DEBUG_SERVER_HOOK_SECRET"


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchConfig:
    """Settings that only environment variables can set, because one of them names the folder of the files."""

    config: Path = setting(
        "The folder that contains `runners.yml` and `repos.yml`.",
        PATH,
        default=Derived(text="the folder of the settings files", of=lambda _: Path("config")),
        variable="DEBUG_SERVER_DISPATCH_CONFIG",
    )
    hook_secret: str | None = setting(
        "The secret that signs `POST /hooks/NAME`; without it, hooks are refused.",
        TEXT,
        default=None,
        variable=HOOK_SECRET,
    )
