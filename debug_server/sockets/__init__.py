"""Finds the user at the other end of a TCP connection on this machine, as the kernel reports it.

Imported by servers and clients; imports ``errors`` and the standard library only.
"""

from __future__ import annotations

from debug_server.sockets.caller import SocketOwner, SocketOwners, user_at_once
from debug_server.sockets.server import serving_user
from debug_server.sockets.table import Connection, canonical

__all__ = ["Connection", "SocketOwner", "SocketOwners", "canonical", "serving_user", "user_at_once"]
