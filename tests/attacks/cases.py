"""The attacks by name; each is a function that yields what must not have happened."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.attacks.commands import bind_mounts, leaving_the_group, stopped_keepers
from tests.attacks.crashes_and_load import exactly_once, leaked_leases, many_connections, no_more_processes
from tests.attacks.outages import full_disk, store_away
from tests.attacks.target import AttackSetup
from tests.attacks.unauthenticated import another_user, own_commands

Case = Callable[[AttackSetup], Iterator[str]]

CASES: dict[str, Case] = {
    "another-user": another_user,
    "own-commands": own_commands,
    "bind-mounts": bind_mounts,
    "leaving-the-group": leaving_the_group,
    "stopped-keepers": stopped_keepers,
    "store-away": store_away,
    "full-disk": full_disk,
    "leaked-leases": leaked_leases,
    "many-connections": many_connections,
    "no-more-processes": no_more_processes,
    "exactly-once": exactly_once,
}


def clear(folder: Path) -> None:
    """Remove what a case left, also files that cannot be changed."""
    subprocess.run(["chattr", "-R", "-i", str(folder)], capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)
