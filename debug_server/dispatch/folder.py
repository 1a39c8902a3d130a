"""Where ``runners.yml`` and ``repos.yml`` are."""

from __future__ import annotations

import os
from pathlib import Path

from debug_server.config import load
from debug_server.config.dispatch import DispatchConfig


def configuration_folder() -> Path:
    """What the setting names, or ``config`` here."""
    return load(DispatchConfig, environ=os.environ).value.config
