"""What runs inside the command's network namespace: the loopback device, and the sockets that the proxy listens on."""

from __future__ import annotations

import fcntl
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_REQUEST = struct.Struct("16sH14x")  # struct ifreq: name, flags
_BACKLOG = 1024
DNS_ADDRESS = "127.0.0.1"
DNS_PORT = 53


class Sockets:
    """The sockets of one command, as they go to the proxy; closes them when left."""

    __slots__ = ("dns", "tcp")

    def __init__(self, tcp: socket.socket, dns: list[socket.socket]) -> None:
        self.tcp, self.dns = tcp, dns

    @classmethod
    def received(cls, fds: list[int]) -> Self:
        """From descriptors in the order of ``fds``."""
        tcp, *dns = [socket.socket(fileno=fd) for fd in fds]
        return cls(tcp, dns)

    @property
    def port(self) -> int:
        """Where the proxy listens, for ``variables``."""
        port: int = self.tcp.getsockname()[1]
        return port

    def fds(self) -> list[int]:
        """For ``socket.send_fds``."""
        return [self.tcp.fileno(), *(each.fileno() for each in self.dns)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self.tcp, *self.dns):
            each.close()


def bring_loopback_up() -> None:
    """In a new network namespace: its ``lo`` is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as any_socket:
        reply = fcntl.ioctl(any_socket, _GET_FLAGS, _REQUEST.pack(b"lo", 0))
        flags = _REQUEST.unpack(reply)[1]
        fcntl.ioctl(any_socket, _SET_FLAGS, _REQUEST.pack(b"lo", flags | _UP))


def sockets_inside(dns_address: str = DNS_ADDRESS, dns_port: int = DNS_PORT) -> Sockets:
    """Bring ``lo`` up and listen: the proxy on a free port of 127.0.0.1, DNS by UDP and TCP.

    Needs CAP_NET_ADMIN for ``lo`` and CAP_NET_BIND_SERVICE for port 53, both in the namespace alone.
    """
    bring_loopback_up()
    tcp = _listen("127.0.0.1", 0)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    udp.bind((dns_address, dns_port))
    return Sockets(tcp, [udp, _listen(dns_address, udp.getsockname()[1])])


def _listen(address: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(_BACKLOG)
    return listener
