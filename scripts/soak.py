"""Kills servers, keepers and users of workspaces and locks the store, then checks that nothing was lost.

``tests/soak`` has the parts.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from debug_server.disk import remove_tree
from tests.soak.campaign import Campaign
from tests.soak.check import Result, check
from tests.soak.full_disk import FullDisk
from tests.soak.workspace_campaign import WorkspaceCampaign

_SHOWN = 50


def main(arguments: list[str] | None = None) -> int:
    """Run one soak; the status is 1 when anything was violated."""
    parser = argparse.ArgumentParser(prog="soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000, help="servers to kill (default: %(default)s)")
    parser.add_argument("--keeper-kills", type=int, default=200, help="keepers to kill (default: %(default)s)")
    parser.add_argument(
        "--workspace-user-kills",
        "--tenant-kills",
        type=int,
        default=300,
        help="users of workspaces and environments to kill (%(default)s)",
    )
    parser.add_argument("--outages", type=int, default=1, help="times that the database is locked (%(default)s)")
    parser.add_argument("--outage-seconds", type=float, default=75.0, help="length of each (default: %(default)s)")
    parser.add_argument(
        "--full-disk", type=int, default=0, metavar="N", help="fill a small disk N times; needs root (%(default)s)"
    )
    parser.add_argument("--backend", default="auto", help="what makes workspaces, as in config/runner.toml")
    parser.add_argument("--seed", type=int, default=None, help="repeats the decisions of an earlier run")
    parser.add_argument("--root", type=Path, default=None, help="an empty directory to use and keep")
    parser.add_argument("--containment", default="auto", help="what holds process trees, as in config/runner.toml")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    root = options.root or Path(tempfile.mkdtemp(prefix="debug-server-soak-"))
    root.mkdir(parents=True, exist_ok=True)
    print(
        f"soak: seed {seed}, {options.kills} server kills, {options.keeper_kills} keeper kills, "
        f"{options.workspace_user_kills} workspace user kills, {options.outages} outages of the store, in {root}",
        flush=True,
    )
    began = time.monotonic()
    result = run(root.resolve(), seed, options)
    report(result, seed, time.monotonic() - began)
    if result.violations:
        print(f"everything is kept in {root}")
    elif options.root is None:
        remove_tree(root)
    return int(bool(result.violations))


def run(root: Path, seed: int, options: argparse.Namespace) -> Result:
    """Run the campaigns, wait until everything has ended, and check the result."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", flush=True)

    results = []
    if options.kills or options.keeper_kills or options.outages:
        results.append(run_commands(root / "commands", seed, options, say))
    if options.workspace_user_kills:
        results.append(run_workspace_users(root / "workspaces", seed, options, say))
    if options.full_disk:
        results.append(run_full_disk(root / "small", seed, options, say))
    figures = {name: value for result in results for name, value in result.figures.items()}
    return Result(figures=figures, violations=[text for result in results for text in result.violations])


def run_commands(root: Path, seed: int, options: argparse.Namespace, say: Callable[[str], None]) -> Result:
    """Servers and keepers."""
    root.mkdir()
    campaign = Campaign(root, seed, say, containment=options.containment)
    try:
        campaign.kill_servers(options.kills)
        campaign.take_store_away(options.outages, options.outage_seconds)
        campaign.kill_keepers(options.keeper_kills)
        campaign.finish()
        return check(campaign)
    finally:
        campaign.close()


def run_full_disk(root: Path, seed: int, options: argparse.Namespace, say: Callable[[str], None]) -> Result:
    """Commands on a disk that is full."""
    root.mkdir()
    campaign = FullDisk(root, seed, say)
    try:
        campaign.fill(options.full_disk)
        campaign.finish()
        return campaign.check()
    finally:
        campaign.close()


def run_workspace_users(root: Path, seed: int, options: argparse.Namespace, say: Callable[[str], None]) -> Result:
    """Users of workspaces and environments."""
    root.mkdir()
    campaign = WorkspaceCampaign(root, seed, say, backend=options.backend)
    try:
        campaign.kill_users(options.workspace_user_kills)
        campaign.finish()
        return campaign.check()
    finally:
        campaign.close()


def report(result: Result, seed: int, seconds: float) -> None:
    """The figures as JSON and as a table, then what was violated."""
    figures = {"seed": seed, "seconds": round(seconds, 1), **result.figures, "violations": len(result.violations)}
    print(json.dumps(figures))
    for name, value in figures.items():
        text = ", ".join(f"{key} {count}" for key, count in value.items()) if isinstance(value, dict) else value
        print(f"  {name.replace('_', ' '):<26} {text}")
    for text in result.violations[:_SHOWN]:
        print(f"VIOLATION {text}")
    if len(result.violations) > _SHOWN:
        print(f"... and {len(result.violations) - _SHOWN} more")
    print("soak: " + ("FAILED" if result.violations else "passed: nothing was lost and nothing is left"))


if __name__ == "__main__":
    sys.exit(main())
