"""Who called: the owner of the caller's socket, asked by the server."""

from __future__ import annotations

from dataclasses import dataclass

from debug_server.sockets.table import ESTABLISHED, Connection, Row, by_netlink, by_proc, is_unmapped


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOwner:
    """Whose socket it is; the inode names it for its life."""

    uid: int
    inode: int


class SocketOwners:
    """Looks up owners; remembers whether this kernel answers by netlink."""

    def __init__(self) -> None:
        self._netlink_answers = False

    def find(self, connection: Connection) -> SocketOwner | None:
        """The owner of the caller's socket; None unless exactly one established, open socket fits.

        A socket that its process has closed has no inode, and older kernels report it as root's.
        """
        rows = by_netlink(connection)
        self._netlink_answers |= bool(rows)
        if not self._netlink_answers:  # a kernel without it says the same as one that has no such connection
            rows = by_proc(connection.port)
        fitting = [row for row in rows if _fits(row, connection)]
        if len(fitting) != 1 or fitting[0].inode == 0 or is_unmapped(fitting[0].uid):
            return None
        return SocketOwner(uid=fitting[0].uid, inode=fitting[0].inode)


def user_at_once(connection: Connection) -> int | None:
    """The user of the caller's socket where netlink answers: no proof, because its process may have gone."""
    return next((row.uid for row in by_netlink(connection) if _fits(row, connection)), None)


def _fits(row: Row, connection: Connection) -> bool:
    return (
        row.state == ESTABLISHED
        and (row.host, row.port, row.peer_port) == (connection.host, connection.port, connection.peer_port)
        and connection.peer_host in (None, row.peer_host)
    )
