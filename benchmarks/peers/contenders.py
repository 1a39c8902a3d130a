"""What each contender can do, and what runs commands over HTTP."""

from __future__ import annotations

import http.client
import json
import threading
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.figures import timed

IN_FLIGHT = 8
TRUE = ["true"]
_LINE = "abcdefghijklmnopqrstuvwxyz 0123456789"


def writer(total: int) -> list[str]:
    """A command that writes so many bytes of text."""
    return ["sh", "-c", f"yes '{_LINE}' 2>/dev/null | head -c {total}"]


class Contender(ABC):
    """Each method returns seconds."""

    name: str
    about: str  # what it does for a command, and how it isolates it
    most_output: float = float("inf")  # bytes of output that it returns

    @abstractmethod
    def run_one(self) -> float:
        """Of ``true``."""

    @abstractmethod
    def run_many(self, count: int) -> float:
        """Of ``count`` times ``true``, with IN_FLIGHT at a time."""

    @abstractmethod
    def run_output(self, total: int) -> float:
        """Of a command that writes ``total`` bytes, until the client has all of them."""


class HttpContender(Contender):
    """One kept connection for each thread."""

    def __init__(self, port: int, headers: dict[str, str]) -> None:
        self._port = port
        self._headers = headers | {"Content-Type": "application/json"}
        self._own = threading.local()
        self._threads = ThreadPoolExecutor(IN_FLIGHT)

    @abstractmethod
    def execute(self, argv: list[str]) -> dict[str, Any]:
        """Run a command to its end; returns the decoded answer."""

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The decoded answer."""
        return json.loads(self.fetch(method, path, body))

    def fetch(self, method: str, path: str, body: object = None) -> bytes:
        """The answer; OSError if it is not a success."""
        try:
            status, data = self._send(method, path, body)
        except ConnectionError:  # a server closes a connection that was idle for some seconds
            status, data = self._send(method, path, body)
        if status >= http.client.BAD_REQUEST:
            raise OSError(f"{self.name}: {method} {path}: {status} {data[:200]!r}")
        return data

    def _send(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        if not hasattr(self._own, "connection"):
            self._own.connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        connection: http.client.HTTPConnection = self._own.connection
        try:
            connection.request(method, path, None if body is None else json.dumps(body), self._headers)
            response = connection.getresponse()
            return response.status, response.read()
        except OSError:
            connection.close()
            raise

    def run_one(self) -> float:
        """In the calling thread."""
        return timed(lambda: self.execute(TRUE))

    def run_many(self, count: int) -> float:
        """In as many threads as are in flight."""
        return timed(lambda: list(self._threads.map(lambda _: self.execute(TRUE), range(count))))

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()
