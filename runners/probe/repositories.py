"""Where a repository is: what the probe was told, else what the governor's registry says."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import grpc

from debug_server.kanban import kanban_pb2, kanban_pb2_grpc
from runners.kit.refusal import Refusal
from runners.kit.words import name, single_line

SECONDS = 5.0


class Repositories:
    """Known repositories, and the governor that knows more."""

    def __init__(self, known: Mapping[str, Path], governor_port: int, token: str | None = None) -> None:
        self._known = dict(known)
        self._governor = f"127.0.0.1:{governor_port}"
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._guard = threading.Lock()

    def names(self) -> list[str]:
        """Those known by now."""
        with self._guard:
            return sorted(self._known)

    def find(self, repository: str) -> Path:
        """A repository's folder; the governor's answer is kept."""
        name(repository, "repository")
        with self._guard:
            known = self._known.get(repository)
        if known is None:
            known = self._ask(repository)
            with self._guard:
                self._known[repository] = known
        return known

    def _ask(self, repository: str) -> Path:
        request = kanban_pb2.GetRepoRequest(name=repository)
        with grpc.insecure_channel(self._governor) as channel:
            try:
                stub = kanban_pb2_grpc.RepoRegistryStub(channel)  # type: ignore[no-untyped-call]
                entry = stub.GetRepo(request, timeout=SECONDS, metadata=self._metadata)
            except grpc.RpcError as error:
                said = single_line(error.details() or error.code().name)
                raise Refusal(
                    f"repository {repository!r} is not one of --repo, and the governor at {self._governor} says: {said}"
                ) from error
        path = Path(entry.local_path)
        if not path.is_absolute():
            raise Refusal(f"the governor gives {entry.local_path!r} for {repository!r}, not an absolute path")
        return path
