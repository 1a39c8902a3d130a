"""The kanban services: decode, call the governor, encode; open to tokens and, without one, to the server's own user."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from grpc.aio import ServicerContext

import debug_server
from debug_server.dispatch.changelog import read_changelog
from debug_server.dispatch.dispatcher import Outcome
from debug_server.dispatch.file_writes import merge_lines, set_env_key, write_file
from debug_server.dispatch.governor import Governor
from debug_server.dispatch.issue_event import IssueEvent
from debug_server.dispatch.repos_file import FIELDS, Repo
from debug_server.dispatch.stream import StreamFilter
from debug_server.errors import DebugServerError, InvalidInputError, NotFoundError
from debug_server.kanban import kanban_pb2 as pb
from debug_server.surfaces.grpc.calls import authenticated_call
from debug_server.surfaces.grpc.decoding import parse
from debug_server.surfaces.grpc.unidentified import Requests, read_one

READ, WRITE, ADMIN = ("sessions:read",), ("commands:write", "sessions:write"), ("admin",)
M = TypeVar("M", bound=Message)
Answer = Callable[[Requests, ServicerContext], Awaitable[Message]]
Behaviour = Callable[[Any], Awaitable[Message]]


class KanbanServices:
    """Every service of the governor's side of ``kanban.proto``."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._service = governor.service

    def handlers(self) -> dict[str, grpc.GenericRpcHandler]:
        """Generic handlers by the services' full names."""
        methods = {
            "kanban.RepoRegistry": {
                "ListRepos": self._unary(pb.ListReposRequest, READ, self._list_repos),
                "GetRepo": self._unary(pb.GetRepoRequest, READ, self._get_repo),
                "AddRepo": self._unary(pb.AddRepoRequest, ADMIN, self._add_repo),
                "UpdateRepo": self._unary(pb.UpdateRepoRequest, ADMIN, self._update_repo),
            },
            "kanban.FileWrite": {
                "Write": self._unary(pb.WriteRequest, ADMIN, self._write),
                "MergeLines": self._unary(pb.MergeRequest, ADMIN, self._merge),
                "SetEnvKey": self._unary(pb.SetEnvKeyRequest, ADMIN, self._set_env_key),
            },
            "kanban.IssueEvent": {
                "Emit": self._unary(pb.IssueEventRequest, WRITE, self._emit),
                "Stream": grpc.stream_stream_rpc_method_handler(
                    self._stream, response_serializer=pb.IssueEventRequest.SerializeToString
                ),
            },
            "kanban.VersionService": {
                "GetVersion": self._unary(pb.GetVersionRequest, READ, self._version),
                "GetChangelog": self._unary(pb.GetChangelogRequest, READ, self._changelog),
            },
        }
        return {name: grpc.method_handlers_generic_handler(name, found) for name, found in methods.items()}

    def _unary(self, kind: type[Message], scopes: tuple[str, ...], behaviour: Behaviour) -> grpc.RpcMethodHandler:
        path = f"/kanban/{behaviour.__name__.strip('_')}"

        async def answer(requests: Requests, context: ServicerContext) -> Message:
            async with authenticated_call(self._service, context, path, scopes, local=True):
                return await behaviour(parse(kind, await read_one(requests)))

        return grpc.stream_unary_rpc_method_handler(
            answer, response_serializer=lambda message: message.SerializeToString()
        )

    async def _emit(self, asked: pb.IssueEventRequest) -> pb.StatusResponse:
        """Emit an event; an invalid event is reported in the response, not as a failed call."""
        event = IssueEvent(
            task_id=asked.task_id,
            event_type=asked.event_type,
            repo_name=asked.repo_name,
            field=asked.field,
            payload=asked.payload,
            timestamp=asked.timestamp,
            paths=tuple(asked.paths),
        )
        try:
            outcomes = await self._governor.dispatcher.emit(event)
        except (InvalidInputError, NotFoundError) as error:
            return pb.StatusResponse(ok=False, error=str(error))
        return pb.StatusResponse(ok=True, message=sentence(outcomes))

    async def _stream(self, requests: Requests, context: ServicerContext) -> None:
        async with authenticated_call(self._service, context, "/kanban/stream", READ, local=True) as caller:
            asked = parse(pb.StreamRequest, await read_one(requests))
            stream_filter = StreamFilter(
                repo_name=asked.repo_filter,
                task_id=asked.task_filter,
                event_type=asked.event_type_filter,
                follow=asked.follow,
                cursor=asked.cursor,
                from_now=asked.from_now,
            )
            stream = self._governor.stream(stream_filter).entries()
            self._service.followers.check_room()
            async with self._service.followers.while_valid(caller, follows=True), aclosing(stream) as entries:
                async for entry in entries:
                    await context.write(
                        pb.IssueEventRequest(
                            task_id=entry.task_id,
                            repo_name=entry.repo_name,
                            event_type=entry.event_type,
                            field=entry.field,
                            payload=entry.payload,
                            timestamp=entry.timestamp,
                            cursor=entry.cursor,
                        )
                    )

    async def _list_repos(self, asked: pb.ListReposRequest) -> pb.ListReposResponse:
        found = await asyncio.to_thread(self._governor.registry.list_repos, asked.status_filter)
        return pb.ListReposResponse(repos=[_entry(repo) for repo in found])

    async def _get_repo(self, asked: pb.GetRepoRequest) -> pb.RepoEntry:
        return _entry(await asyncio.to_thread(self._governor.registry.get, asked.name))

    async def _add_repo(self, asked: pb.AddRepoRequest) -> pb.StatusResponse:
        given = {name: value for name in FIELDS if (value := getattr(asked.repo, name))}
        repo = Repo(name=asked.repo.name, **{"local_path": "", **given})
        return await self._status(f"repository {repo.name} added", self._governor.registry.add, repo)

    async def _update_repo(self, asked: pb.UpdateRepoRequest) -> pb.StatusResponse:
        await asyncio.to_thread(self._governor.registry.get, asked.name)  # NOT_FOUND
        update = self._governor.registry.update
        return await self._status(f"repository {asked.name} updated", update, asked.name, dict(asked.fields))

    async def _status(self, done: str, change: Callable[..., None], *arguments: Any) -> pb.StatusResponse:
        try:
            await asyncio.to_thread(change, *arguments)
        except NotFoundError:
            raise
        except DebugServerError as error:
            return pb.StatusResponse(ok=False, error=str(error))
        return pb.StatusResponse(ok=True, message=done)

    async def _write(self, asked: pb.WriteRequest) -> pb.WriteResponse:
        return await self._write_to_repository(
            asked.repo_name, write_file, asked.relative_path, asked.content, merge=asked.merge
        )

    async def _merge(self, asked: pb.MergeRequest) -> pb.WriteResponse:
        return await self._write_to_repository(asked.repo_name, merge_lines, list(asked.lines))

    async def _set_env_key(self, asked: pb.SetEnvKeyRequest) -> pb.WriteResponse:
        return await self._write_to_repository(asked.repo_name, set_env_key, asked.key, asked.value)

    async def _write_to_repository(
        self, repo: str, change: Callable[..., Any], *arguments: Any, **options: Any
    ) -> pb.WriteResponse:
        try:
            root = await asyncio.to_thread(self._governor.registry.path_of, repo)
            path = await asyncio.to_thread(change, root, *arguments, **options)
        except DebugServerError as error:
            return pb.WriteResponse(ok=False, error=str(error))
        return pb.WriteResponse(ok=True, written_path=str(path))

    async def _version(self, asked: pb.GetVersionRequest) -> pb.GetVersionResponse:
        current = await self._governor.configuration.current_async()
        meta = current.runners.meta
        log = await asyncio.to_thread(read_changelog, current.root, 1)
        return pb.GetVersionResponse(
            version=debug_server.__version__,
            date=log.date,
            model_3b=meta.get("model_3b", ""),
            model_8b=meta.get("model_8b", ""),
        )

    async def _changelog(self, asked: pb.GetChangelogRequest) -> pb.GetChangelogResponse:
        root = (await self._governor.configuration.current_async()).root
        log = await asyncio.to_thread(read_changelog, root, asked.entries)
        return pb.GetChangelogResponse(
            latest_version=log.version, latest_date=log.date, summary=log.summary, full_text=log.text
        )


def sentence(outcomes: list[Outcome]) -> str:
    """The outcomes of an event as text."""
    return "\n".join(outcome.line for outcome in outcomes)


def _entry(repo: Repo) -> pb.RepoEntry:
    return pb.RepoEntry(name=repo.name, **{name: getattr(repo, name) for name in FIELDS})
