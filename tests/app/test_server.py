"""The server's own start and stop."""

from __future__ import annotations

import asyncio
import os
import socket
import threading

import pytest

from debug_server.app.server import wait_until_free
from tests.running import lasting_port


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_that_a_forked_child_still_has(host: str) -> None:
    """A listener was closed, and a child that has not called exec yet keeps a copy: the port is free once it does."""
    port = lasting_port()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    copy = os.dup(listener.fileno())
    listener.close()
    with pytest.raises(OSError, match="in use"):
        socket.create_server((host, port), family=family)
    threading.Timer(0.2, os.close, [copy]).start()
    asyncio.run(wait_until_free(host, port))
    socket.create_server((host, port), family=family).close()
