"""Runs a program in a network namespace of its own, after it has passed the sockets for a proxy to its parent.

Arguments: the descriptor of a Unix socket to the parent, then the program. Status 77 when no namespace can be made.
"""

from __future__ import annotations

import os
import socket
import sys

from debug_server.runner.egress.inside import sockets_inside
from debug_server.runner.egress.variables import variables
from debug_server.runner.keeper.linux import CLONE_NEWUSER, unshare

CLONE_NEWNET = 0x40000000
NO_NAMESPACE = 77


def main(parent_fd: int, argv: list[str]) -> None:
    """Only ever returns by an error."""
    parent = socket.socket(fileno=parent_fd)
    try:
        unshare(CLONE_NEWNET if os.geteuid() == 0 else CLONE_NEWNET | CLONE_NEWUSER)
        sockets = sockets_inside()
    except OSError as error:
        parent.sendall(str(error).encode())
        sys.exit(NO_NAMESPACE)
    with sockets:
        socket.send_fds(parent, [b"\0"], sockets.fds())
        os.environ.update(variables(sockets.port))
    parent.recv(1)  # the proxy is there
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
