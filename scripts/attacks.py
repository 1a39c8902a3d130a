"""Attacks a running server, as another user of the machine and by its own commands: ``tests/attacks``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.attacks.campaign import main

if __name__ == "__main__":
    sys.exit(main())
