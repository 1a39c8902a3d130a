"""Ports that are taken for servers that bind by themselves."""

from __future__ import annotations

import os
import socket

import pytest

from debug_server.errors import ConfigurationError
from debug_server.sockets.ports import reserve_port
from tests.running import lasting_port

HOSTS = ("127.0.0.1", "::1", "::")


@pytest.mark.parametrize("host", HOSTS)
def test_a_copy_in_a_forked_child_keeps_nobody_from_listening(host: str) -> None:
    """The socket is closed, a child that has not called exec yet still has a copy: the port can be listened on."""
    port = lasting_port()
    reserved = reserve_port(host, port, what="reserved", remedy="none")
    copy = os.dup(reserved.fileno())
    reserved.close()
    with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
        os.close(copy)


@pytest.mark.parametrize("host", HOSTS)
def test_a_port_in_use_is_refused(host: str) -> None:
    """Where somebody listens the error has the reason and the remedy, and so has one for a port that there is not."""
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as taken:
        with pytest.raises(ConfigurationError, match=r"here \(Address already in use\): go away"):
            reserve_port(host, taken.getsockname()[1], what="here", remedy="go away")
        with pytest.raises(ConfigurationError, match="from 0 to 65535"):
            reserve_port(host, 70_000, what="here", remedy="go away")
