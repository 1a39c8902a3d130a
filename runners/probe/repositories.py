"""Finds the path of a repository: from ``--repo``, or else from the governor's registry."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import grpc

from debug_server.kanban import kanban_pb2, kanban_pb2_grpc
from runners.kit.errors import JobError
from runners.kit.text import checked_name, single_line

SECONDS = 5.0


class Repositories:
    """The known repositories; others are looked up at the governor."""

    def __init__(self, known: Mapping[str, Path], governor_port: int, token: str | None = None) -> None:
        self._known = dict(known)
        self._governor = f"127.0.0.1:{governor_port}"
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._mutex = threading.Lock()

    def names(self) -> list[str]:
        """The names of the known repositories."""
        with self._mutex:
            return sorted(self._known)

    def find(self, repository: str) -> Path:
        """The path of a repository; an answer of the governor is cached."""
        checked_name(repository, "repository")
        with self._mutex:
            known = self._known.get(repository)
        if known is None:
            known = self._ask(repository)
            with self._mutex:
                self._known[repository] = known
        return known

    def _ask(self, repository: str) -> Path:
        request = kanban_pb2.GetRepoRequest(name=repository)
        with grpc.insecure_channel(self._governor) as channel:
            try:
                stub = kanban_pb2_grpc.RepoRegistryStub(channel)  # type: ignore[no-untyped-call]
                entry = stub.GetRepo(request, timeout=SECONDS, metadata=self._metadata)
            except grpc.RpcError as error:
                reason = single_line(error.details() or error.code().name)
                raise JobError(
                    f"repository {repository!r} is not in --repo, and the governor at {self._governor} says: {reason}"
                ) from error
        path = Path(entry.local_path)
        if not path.is_absolute():
            raise JobError(f"the governor gives {entry.local_path!r} for {repository!r}, not an absolute path")
        return path
