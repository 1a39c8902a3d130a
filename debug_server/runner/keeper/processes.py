"""Lists the processes of a tree for the exit record, without secrets."""

from __future__ import annotations

from debug_server.runner.keeper import redaction
from debug_server.runner.keeper.linux import stat_fields
from debug_server.runner.keeper.tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LISTED_PROCESSES = 40
_SHOWN, _READ = 200, 1 << 16  # bytes of a command line in the record, and bytes read: redaction makes it shorter


def describe(tree: Tree, orders: dict[str, Any]) -> list[dict[str, Any]]:
    """Pid, state, parent and command line of each; ``orders`` name the secrets."""
    listed = []
    for pid in tree.first_pids(_LISTED_PROCESSES):
        fields = stat_fields(pid)
        if fields is not None and pid != tree.own_init:
            listed.append(
                {"pid": pid, "state": fields[0], "ppid": int(fields[1]), "command": _command_line(pid, orders)}
            )
    return listed


def _command_line(pid: int, orders: dict[str, Any]) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            line = file.read(_READ).replace(b"\0", b" ")
    except OSError:
        return ""
    if (hide := redaction.new_filter(orders)) is not None:
        begun = hide.feed(line)
        line = begun + (hide.end() if len(line) < _READ else b"")  # at the read limit, drop an incomplete secret
    return line[:_SHOWN].decode("utf-8", "replace").strip()
