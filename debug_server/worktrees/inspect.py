"""Command line over a repository's workspaces: ``show-active`` and ``reclaim``."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from debug_server.app import Local
from debug_server.errors import DebugServerError, InvalidInputError
from debug_server.model import Repository, Worktree, WorktreeStatus
from debug_server.worktrees.repository_pool import build_pool_from_repository

_REMOVAL_SECONDS = 600.0
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_HEADINGS = ("ID", "STATUS", "OWNER", "COMMIT", "EXPIRES", "PATH")


def parse_duration(text: str) -> timedelta:
    """From ``90s``, ``15m``, ``1h``, ``7d``."""
    match = re.fullmatch(r"(\d{1,9})([smhd])", text.strip())
    if match is None:
        raise InvalidInputError(f"duration {text!r} is not valid: use a number and s, m, h or d, such as 1h")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a failure is one line on stderr and status 2."""
    options = _parser().parse_args(argv)
    try:
        with Local.open(database_url=options.database_url) as local:
            repository = _find(local, options.repository)
            lines = (
                _show(local, repository) if options.action == "show-active" else _reclaim(local, repository, options)
            )
    except (DebugServerError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m debug_server.worktrees.inspect", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    show = actions.add_parser("show-active", help="list the workspaces that are leased")
    reclaim = actions.add_parser("reclaim", help="remove workspaces that were idle for longer than AGE")
    for command in (show, reclaim):
        command.add_argument("--repository", required=True, help="name or number")
        command.add_argument("--database-url", help="default: DEBUG_SERVER_DB_URL, else .artifacts/data/metadata.db")
    reclaim.add_argument("--older-than", required=True, metavar="AGE", help="such as 30m, 1h or 7d")
    reclaim.add_argument("--bare-path", type=Path, help="default: .artifacts/repos/NAME.bare")
    reclaim.add_argument("--worktree-root", type=Path, help="default: .artifacts/worktrees/NAME")
    return parser


def _find(local: Local, text: str) -> Repository:
    store = local.store
    return store.repositories.get(int(text)) if text.isdigit() else store.repositories.by_name(text)


def _show(local: Local, repository: Repository) -> list[str]:
    active = [row for row in local.store.worktrees.page(repository.id) if row.status is not WorktreeStatus.IDLE]
    if not active:
        return [f"no workspace of {repository.name} is leased"]
    return _table([_HEADINGS, *(_cells(row) for row in active)])


def _cells(row: Worktree) -> tuple[str, ...]:
    expires = row.lease_expires_at.isoformat(timespec="seconds") if row.lease_expires_at else "-"
    return (str(row.id), row.status.value, row.owner or "-", (row.commit_sha or "-")[:12], expires, row.path)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = (zip(row, widths, strict=True) for row in rows)
    return ["  ".join(cell.ljust(width) for cell, width in row).rstrip() for row in padded]


def _reclaim(local: Local, repository: Repository, options: argparse.Namespace) -> list[str]:
    age = parse_duration(options.older_than)
    root = local.settings.paths.artifacts_root
    pool = build_pool_from_repository(
        local.store,
        repository,
        bare_path=options.bare_path or root / "repos" / f"{repository.name}.bare",
        worktree_root=options.worktree_root or root / "worktrees" / repository.name,
        defaults=local.settings.workspaces,
    )
    before = pool.disk_bytes()
    removed = pool.reclaim_stale_worktrees(max_idle_age=age)
    complete = pool.wait_for_removals(_REMOVAL_SECONDS)
    freed = max(0, before - pool.disk_bytes())
    more = "" if complete else "; the server deletes the rest"
    return [
        *(f"removed {path}" for path in removed),
        f"{len(removed)} workspaces of {repository.name} reclaimed, {freed} bytes freed{more}",
    ]


if __name__ == "__main__":
    sys.exit(main())
