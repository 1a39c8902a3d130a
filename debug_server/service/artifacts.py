"""The verbs of artifacts."""

from __future__ import annotations

from pathlib import Path

from debug_server import messages as m
from debug_server.errors import NotFoundError
from debug_server.model import Artifact
from debug_server.service import views
from debug_server.service.caller import Caller
from debug_server.service.verbs import Verbs


class ArtifactVerbs(Verbs):
    """Files kept from commands."""

    async def page(self, caller: Caller, request: m.SessionListRequest) -> m.ArtifactList:
        """A session's artifacts."""
        session = await self._access.use_session(caller, request.session_id)
        rows = await self._call(
            self._store.artifacts.in_session,
            session.id,
            after=request.after,
            limit=request.limit + 1,
            newest=request.newest,
        )
        rows, next_after = views.one_page(rows, request.limit, lambda row: row.id)
        return m.ArtifactList(items=[views.artifact(row) for row in rows], next_after=next_after)

    async def get(self, caller: Caller, request: m.ArtifactRef) -> m.ArtifactReply:
        """One artifact."""
        return views.artifact((await self._artifact(caller, request))[0])

    async def path(self, caller: Caller, request: m.ArtifactRef) -> Path:
        """The file of an artifact, for surfaces that can send files; NotFoundError when it is gone."""
        return (await self._artifact(caller, request))[1]

    async def _artifact(self, caller: Caller, request: m.ArtifactRef) -> tuple[Artifact, Path]:
        session = await self._access.use_session(caller, request.session_id)
        row = await self._call(self._store.artifacts.get, request.artifact_id)
        if row.session_id != session.id:
            raise NotFoundError(f"session {session.id} has no artifact {request.artifact_id}")
        return row, await self._call(_file, row)


def _file(row: Artifact) -> Path:
    path = Path(row.path)
    if not path.is_file():
        raise NotFoundError(f"the file of artifact {row.id} is gone")
    return path
