"""Run directories: names them, fences them off, reads their files and removes them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
from pathlib import Path
from typing import Any

from debug_server.runner.keeper.linux import is_alive, start_time
from debug_server.runner.keeper.rundir import HANDLE
from debug_server.runner.keeper_process import keeper_alive

_FENCED = {"fenced": True}

_BETWEEN = re.compile(r"\.(?:keeper|fence)-(\d+)-(\d+)")
_REMOVE_PASSES = 100


def run_dir_for(keepers_dir: Path, command_id: int, attempt: int) -> Path:
    """The run directory of one attempt; absolute, because the keeper has another working directory."""
    return keepers_dir.absolute() / f"{command_id}-{attempt}"


def fence(run_dir: Path) -> dict[str, Any] | None:
    """Keep a keeper from starting this attempt; returns the handle if it has already started it.

    The fence is the run directory itself. Remove it only after the keeper's connection or the owner's file is gone.
    """
    draft = run_dir.with_name(f".fence-{os.getpid()}-{start_time(os.getpid())}-{secrets.token_hex(4)}")
    draft.mkdir(parents=True, mode=0o700)
    try:
        (draft / HANDLE).write_text(json.dumps(_FENCED))
        draft.rename(run_dir)
    except OSError as error:
        remove_run_dir(draft)
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        handle = read_json(run_dir / HANDLE)
        return None if handle is None or handle.get("fenced") else handle
    return None


def remove_run_dir(run_dir: Path) -> None:
    """Remove the run directory of a finished attempt; what cannot be removed is left for the next recovery.

    A keeper on a full disk writes its record again and again, perhaps between our last unlink and the rmdir; when the
    directory is gone it gives up.
    """
    with contextlib.suppress(OSError):
        for _ in range(_REMOVE_PASSES):
            for path in run_dir.iterdir():
                path.unlink(missing_ok=True)
            try:
                run_dir.rmdir()
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
            else:
                return


def is_being_created(path: Path) -> bool:
    """Whether a live process is about to rename this directory to a run directory."""
    found = _BETWEEN.match(path.name)
    return found is not None and is_alive(int(found[1]), int(found[2]))


def writer_of(keepers_dir: Path, command_id: int, log_path: Path) -> Path | None:
    """The run directory of a live keeper that writes to ``log_path``, for a command with this id in any store."""
    for run_dir in keepers_dir.glob(f"{command_id}-*"):
        with contextlib.suppress(ValueError):  # damaged
            handle = read_json(run_dir / HANDLE)
            if handle is None or handle.get("fenced") or not keeper_alive(handle):
                continue
            if Path(handle["log_path"]).parts[-2:] == log_path.parts[-2:]:
                return run_dir
    return None


def read_json(path: Path) -> dict[str, Any] | None:
    """A small file that is written atomically; None if it does not exist."""
    text = read_text(path)
    return None if text is None else json.loads(text)


def read_text(path: Path) -> str | None:
    """The text of a file; None if it does not exist."""
    try:
        return path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
