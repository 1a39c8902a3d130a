"""The verbs of repositories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from debug_server import messages as m
from debug_server.errors import ConflictError, InvalidInputError, NotFoundError, WorktreePoolError
from debug_server.messages import ADMIN
from debug_server.model import Repository, check_name
from debug_server.service import views
from debug_server.service.caller import Caller
from debug_server.service.verbs import Verbs
from debug_server.worktrees.mirror import check_remote_url, default_branch, is_local
from debug_server.worktrees.new_repository import make_repository
from debug_server.worktrees.repository_pool import check_repository_settings
from debug_server.worktrees.repository_view import check_remote_is_there

_DEFAULT_BRANCH_SECONDS = 20.0  # for a remote's default branch; the caller waits for it
_FALLBACK_BRANCH = "main"  # if the remote has no branch


class RepositoryVerbs(Verbs):
    """Registered git remotes."""

    async def register(self, caller: Caller, request: m.RegisterRepository) -> m.RepositoryReply:
        """Register a git remote; repeating a registration returns the existing one."""
        check_name(request.name, what="repository name")
        return views.repository(await self._call_git(self._register, request))

    def _register(self, request: m.RegisterRepository) -> Repository:
        remote = check_remote_url(request.remote_url)
        _refuse_relative(request.remote_url)
        fetch_timeout = check_repository_settings(request.settings).get("fetch_timeout", _DEFAULT_BRANCH_SECONDS)
        if (known := self._find_registered(request)) is not None:  # without asking the remote
            return known
        check_remote_is_there(remote, self._sessions.trust)
        found = self._ask_branch(remote, min(fetch_timeout, _DEFAULT_BRANCH_SECONDS))
        branch = request.default_branch or found or _FALLBACK_BRANCH
        try:
            return self._store.repositories.create(
                request.name,
                request.remote_url,
                default_branch=branch,
                description=request.description,
                settings=request.settings,
            )
        except ConflictError:  # another request registered it meanwhile
            if (known := self._find_registered(request)) is None:
                raise
            return known

    def _ask_branch(self, remote: str, seconds: float) -> str | None:
        """The remote's default branch; InvalidInputError if the remote does not answer."""
        sessions = self._sessions
        try:
            return default_branch(remote, folder=sessions.views_dir, timeout=seconds, trust=sessions.trust)
        except WorktreePoolError as error:
            raise InvalidInputError(f"{error}: check the address", field="remote_url") from error

    def _find_registered(self, request: m.RegisterRepository) -> Repository | None:
        """The repository with the requested name; ConflictError if it differs from the request."""
        try:
            row = self._store.repositories.by_name(request.name)
        except NotFoundError:
            return None
        asked = {"remote_url": request.remote_url, "settings": request.settings}
        asked |= {name: value for name in ("default_branch", "description") if (value := getattr(request, name))}
        if differs := [name for name, value in asked.items() if getattr(row, name) != value]:
            raise ConflictError(
                f"the repository {request.name!r} is registered with another {' and '.join(differs)},"
                " which cannot be changed: choose another name"
            )
        return row

    async def get(self, caller: Caller, request: m.RepositoryRef) -> m.RepositoryReply:
        """One repository."""
        return views.repository(await self._call(self._registered, caller, request.name))

    async def remove(self, caller: Caller, request: m.RepositoryRef) -> m.Message:
        """Remove a repository without open sessions, with its mirror and workspaces; its history stays."""
        repository = await self._call(self._registered, caller, request.name)
        await self._call_git(self._sessions.remove_repository, repository)
        return m.Message(message=f"repository {request.name} is removed")

    async def page(self, caller: Caller, request: m.ListRequest) -> m.RepositoryList:
        """A page of them."""
        rows = await self._call(
            self._store.repositories.page, after=request.after, limit=request.limit + 1, newest=request.newest
        )
        rows, following = views.one_page(rows, request.limit, lambda row: row.id)
        return m.RepositoryList(items=[views.repository(row) for row in rows], next_after=following)

    def check_folder(self, folder: Path) -> None:
        """InvalidInputError for another user's folder, unless the settings trust it. Blocks briefly."""
        self._sessions.trust.check_folder(folder)

    def create_directory(self, caller: Caller, directory: Path, *, branch: str, files: Mapping[str, str]) -> bool:
        """Make a repository with one commit in a directory that does not exist; False if it does. Blocks: runs git."""
        caller.require((ADMIN,))
        return make_repository(directory, branch=branch, files=files)

    async def register_directory(self, caller: Caller, directory: Path, name: str) -> int:
        """The id of the repository in a directory of this machine, which is registered if it is new."""
        caller.require((ADMIN,))
        return (await self._call(self._sessions.register, str(directory), name=name)).id


def _refuse_relative(remote: str) -> None:
    """InvalidInputError for a relative path: the caller's folder is not the server's."""
    if is_local(remote) and "://" not in remote and not remote.startswith(("/", "~")):
        raise InvalidInputError(
            f"remote_url {remote!r} is a relative path: give a git URL, or an absolute path on the server's machine",
            field="remote_url",
        )
