"""Where ``runners.yml`` and ``repos.yml`` are."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "DEBUG_SERVER_DISPATCH_CONFIG"


def configuration_folder() -> Path:
    """What the variable names, or ``config`` here."""
    return Path(os.environ.get(VARIABLE) or "config")
