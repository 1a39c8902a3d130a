"""For servers: finds the owner of a caller's socket."""

from __future__ import annotations

from dataclasses import dataclass

from debug_server.sockets.table import ESTABLISHED, Connection, Row, by_netlink, by_proc, is_unmapped


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOwner:
    """The owner of a socket; the inode identifies the socket as long as it exists."""

    uid: int
    inode: int


class SocketOwners:
    """Looks up owners; remembers whether this kernel supports the netlink query."""

    def __init__(self) -> None:
        self._netlink_answers = False

    @property
    def answers_at_once(self) -> bool:
        """Whether ``find`` takes microseconds."""
        return self._netlink_answers

    def find(self, connection: Connection) -> SocketOwner | None:
        """The owner of the caller's socket; None unless exactly one established, open socket fits.

        A socket that its process has closed has no inode, and older kernels report it as root's.
        """
        rows = by_netlink(connection)
        self._netlink_answers |= bool(rows)
        if not self._netlink_answers:  # without netlink the answer is empty too, as for an unknown connection
            rows = by_proc(connection.port)
        matching = [row for row in rows if _matches(row, connection)]
        if len(matching) != 1 or matching[0].inode == 0 or is_unmapped(matching[0].uid):
            return None
        return SocketOwner(uid=matching[0].uid, inode=matching[0].inode)


def user_at_once(connection: Connection) -> int | None:
    """The user of the caller's socket where netlink answers: no proof, because its process may have gone."""
    return next((row.uid for row in by_netlink(connection) if _matches(row, connection)), None)


def _matches(row: Row, connection: Connection) -> bool:
    return (
        row.state == ESTABLISHED
        and (row.host, row.port, row.peer_port) == (connection.host, connection.port, connection.peer_port)
        and connection.peer_host in (None, row.peer_host)
    )
