"""Checks whether the keepers of the commands that hold all slots still answer."""

from __future__ import annotations

import select
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from debug_server.errors import KeeperError
from debug_server.runner.keeper_connection import KeeperConnection
from debug_server.runner.run_dirs import run_dir_for
from debug_server.store import MetadataStore

_SECONDS = 2.0  # within this time at least one keeper must answer


def check_slots(store: MetadataStore, keepers_dir: Path, held: list[int]) -> str:
    """``ok``, or why no other command can start while these commands hold every slot."""
    if not held or _any_keeper_answers(store, keepers_dir, held):
        return "ok"
    return f"all {len(held)} slots are held by keepers that do not answer (commands {', '.join(map(str, held))})"


def _any_keeper_answers(store: MetadataStore, keepers_dir: Path, command_ids: Iterable[int]) -> bool:
    """Whether one of the commands is starting or has ended, or has a keeper that answers."""
    with ExitStack() as opened:
        asked: list[KeeperConnection] = []
        for command_id in command_ids:
            command = store.commands.get(command_id)
            if command.status != "running":
                return True
            try:
                run_dir = run_dir_for(keepers_dir, command.id, command.attempt)
                connection = opened.enter_context(KeeperConnection.connect(run_dir, _SECONDS))
                connection.send({"op": "status", "n": 1})
            except KeeperError:
                continue
            asked.append(connection)
        # Any reply, even an error, shows that the keeper runs.
        return bool(asked) and bool(select.select([item.raw_socket() for item in asked], [], [], _SECONDS)[0])
