"""Where ``runners.yml`` and ``repos.yml`` are."""

from __future__ import annotations

import os
from pathlib import Path

from debug_server.config import find_place, load
from debug_server.config.dispatch import DispatchConfig


def configuration_folder() -> Path:
    """What the setting names, or ``config`` in the place that applies here."""
    defaults = {"config": find_place().config_folder}
    return load(DispatchConfig, environ=os.environ, defaults=defaults).value.config
