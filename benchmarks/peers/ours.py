"""``POST /api/v1/sessions/{id}/exec`` of a server with its defaults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.figures import timed
from benchmarks.peers.contenders import HttpContender, writer
from benchmarks.service.serving import Server, serving


class Ours(HttpContender):
    """Commands of one session, each with a row in the database, a log on disk and a keeper."""

    name = "ours"

    def __init__(self, server: Server, session_id: int) -> None:
        super().__init__(server.port, {"Authorization": f"Bearer {server.token}"})
        self._session = session_id
        self.about = ""

    def execute(self, argv: list[str], output_bytes: int = 1 << 16) -> dict[str, Any]:
        """One request; its answer has the output."""
        body = {"argv": argv, "output_bytes": output_bytes}
        found: dict[str, Any] = self.ask("POST", f"/api/v1/sessions/{self._session}/exec", body)
        if found["exit_code"] != 0:
            raise OSError(f"{argv[0]} did not end well: {found}")
        return found

    def describe(self) -> None:
        """Ask the server how it held a command."""
        command = self.ask("GET", f"/api/v1/commands/{self.execute(['true'])['command_id']}")
        record = command["exit"]
        namespaces = "".join(f", {name} namespace" for name in record["evidence"].get("namespaces", []))
        self.about = f"HTTP; row, log on disk, keeper; {record['mechanism']}{namespaces}"

    def run_output(self, total: int) -> float:
        """The command and then its whole log."""
        return timed(lambda: self._read_output(total))

    def _read_output(self, total: int) -> None:
        command_id = self.execute(writer(total), output_bytes=0)["command_id"]
        received = len(self.fetch("GET", f"/api/v1/commands/{command_id}/log"))
        if received != total:
            raise OSError(f"the log of command {command_id} has {received} of {total} bytes")


@contextmanager
def ours() -> Iterator[Ours]:
    """A server of its own."""
    with serving() as server:
        connection = server.connect()
        contender = Ours(server, connection.open_session())
        try:
            contender.describe()
            yield contender
        finally:
            contender.close()
            connection.close()
