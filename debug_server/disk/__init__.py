"""Handles files that others may have tampered with: opens, writes, unmounts, removes without following links.

Imported by every layer above ``ports``; imports ``errors`` and the standard library only.
"""

from __future__ import annotations

from debug_server.disk.drafts import write_draft
from debug_server.disk.folders import Folder, open_folder, read_bounded
from debug_server.disk.mounts import Mount, detach, detach_below, is_mounted, list_mounts
from debug_server.disk.private import make_private, tighten
from debug_server.disk.removal import Leftover, empty_folder, release_entry, remove_entry, remove_tree
from debug_server.disk.trusted import (
    check_trusted,
    is_shared,
    open_trusted,
    owners_of,
    read_trusted,
    trusted_users,
    why_distrusted,
    why_replaceable,
)

__all__ = [
    "Folder",
    "Leftover",
    "Mount",
    "check_trusted",
    "detach",
    "detach_below",
    "empty_folder",
    "is_mounted",
    "is_shared",
    "list_mounts",
    "make_private",
    "open_folder",
    "open_trusted",
    "owners_of",
    "read_bounded",
    "read_trusted",
    "release_entry",
    "remove_entry",
    "remove_tree",
    "trusted_users",
    "tighten",
    "why_distrusted",
    "why_replaceable",
    "write_draft",
]
