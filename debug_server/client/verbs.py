"""The methods of both clients, made from calls: each takes the parameters of its call and returns its reply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import wraps
from inspect import iscoroutinefunction, signature
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from debug_server.client import calls
from debug_server.client.calls import Call
from debug_server.client.completed import Completed, RunInProgress
from debug_server.errors import UnavailableError
from debug_server.messages import ExecReply, Items
from debug_server.messages.base import meant_field

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class Sender(Protocol):
    """A blocking client."""

    def send(self, call: Call[R]) -> R:
        """Perform one operation."""

    def pages(self, call: Call[Items[R]]) -> Iterator[R]:
        """The items of a list."""


class AsyncSender(Protocol):
    """An asynchronous client."""

    async def send(self, call: Call[R]) -> R:
        """Perform one operation."""

    def pages(self, call: Call[Items[R]]) -> AsyncIterator[R]:
        """The items of a list."""


class Verb(Generic[P, T]):
    """An operation as a method."""

    def __init__(self, build: Callable[P, Call[T]]) -> None:
        self.build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[P, T]: ...

    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[P, Awaitable[T]]: ...

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Call[T]]: ...

    def __get__(self, client: Any, owner: type) -> Callable[P, Any]:
        if client is None:  # accessed on the class, as help() does
            return self.build

        @wraps(self.build)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.send(self.build(*args, **kwargs))

        @wraps(self.build)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
            return await client.send(self.build(*args, **kwargs))

        return awaited if iscoroutinefunction(client.send) else method


class Pages(Generic[P, T]):
    """A list as a method that returns an iterator over all its items; it takes the parameters of the list's call.

    Pages are fetched as they are needed. ``limit`` bounds the number of items.
    """

    def __init__(self, build: Callable[P, Call[Items[T]]]) -> None:
        self.build = build
        self.__doc__ = f"{(build.__doc__ or '').partition(', a page at a time')[0].rstrip('.')}: an iterator over all."

    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[P, Iterator[T]]: ...

    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[P, AsyncIterator[T]]: ...

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Call[Items[T]]]: ...

    def __get__(self, client: Any, owner: type) -> Callable[P, Any]:
        if client is None:
            return self.build

        @wraps(self.build)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.pages(self.build(*args, **kwargs))

        return method


class Run(Generic[P]):
    """``run``: repeats its request, with the same idempotency key, until the command has ended."""

    def __init__(self, build: Callable[P, Call[ExecReply]]) -> None:
        self.build = build
        self.__doc__ = (
            "Run a command to its end, in a session, in a new workspace of a repository or in a new empty folder;"
            " ``wait`` bounds each request only."
        )

    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[P, Completed]: ...

    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[P, Awaitable[Completed]]: ...

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Call[ExecReply]]: ...

    def __get__(self, client: Any, owner: type) -> Callable[P, Any]:
        if client is None:
            return self.build

        @wraps(self.build)
        def method(*args: P.args, **kwargs: P.kwargs) -> Completed:
            run = RunInProgress(_built("run", self.build, args, kwargs))
            while not run.ended:
                try:
                    run.take(client.send(run.call))
                except UnavailableError as error:
                    run.interrupted(error)
            return run.completed

        @wraps(self.build)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Completed:
            run = RunInProgress(_built("run", self.build, args, kwargs))
            while not run.ended:
                try:
                    run.take(await client.send(run.call))
                except UnavailableError as error:
                    run.interrupted(error)
            return run.completed

        found = awaited if iscoroutinefunction(client.send) else method
        found.__doc__ = self.__doc__
        return found


def _built(name: str, build: Callable[..., Call[T]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call[T]:
    """The call; TypeError names the method that was called, not the function that builds its request."""
    try:
        signature(build).bind(*args, **kwargs)
    except TypeError as error:
        unknown = next((given for given in kwargs if given not in signature(build).parameters), "")
        meant = meant_field(unknown, signature(build).parameters) if unknown else None
        raise TypeError(f"{name}() {error}{f': did you mean {meant!r}?' if meant else ''}") from None
    return build(*args, **kwargs)


class Verbs:
    """Every operation that is one request, an iterator for every list, and ``run``."""

    run = Run(calls.exec_command)
    repositories = Pages(calls.list_repositories)
    sessions = Pages(calls.list_sessions)
    commands = Pages(calls.list_commands)
    all_commands = Pages(calls.find_commands)
    artifacts = Pages(calls.list_artifacts)
    events = Pages(calls.read_events)
    leases = Pages(calls.list_leases)
    workers = Pages(calls.list_workers)
    tokens = Pages(calls.list_tokens)
    tasks = Pages(calls.list_tasks)

    register_repository = initialize_repository = Verb(calls.register_repository)
    get_repository = Verb(calls.get_repository)
    list_repositories = Verb(calls.list_repositories)
    remove_repository = Verb(calls.remove_repository)
    open_session = create_session = Verb(calls.open_session)
    get_session = Verb(calls.get_session)
    list_sessions = Verb(calls.list_sessions)
    fork_session = Verb(calls.fork_session)
    reset_session = Verb(calls.reset_session)
    diff_session = Verb(calls.diff_session)
    close_session = Verb(calls.close_session)
    debug_session = send_debug_action = Verb(calls.debug_session)
    submit_command = Verb(calls.submit_command)
    start_run = Verb(calls.start_run)
    exec_command = Verb(calls.exec_command)
    get_command = Verb(calls.get_command)
    list_commands = Verb(calls.list_commands)
    find_commands = Verb(calls.find_commands)
    rerun_command = Verb(calls.rerun_command)
    cancel_command = Verb(calls.cancel_command)
    signal_command = Verb(calls.signal_command)
    write_stdin = Verb(calls.write_stdin)
    read_log_text = Verb(calls.read_log_text)
    digest_log = Verb(calls.digest_log)
    list_artifacts = Verb(calls.list_artifacts)
    get_artifact = Verb(calls.get_artifact)
    read_events = Verb(calls.read_events)
    list_leases = Verb(calls.list_leases)
    list_workers = Verb(calls.list_workers)
    restart_worker = Verb(calls.restart_worker)
    reset_worker = Verb(calls.reset_worker)
    stop_worker = Verb(calls.stop_worker)
    create_token = Verb(calls.create_token)
    list_tokens = Verb(calls.list_tokens)
    revoke_token = Verb(calls.revoke_token)
    who_am_i = Verb(calls.who_am_i)
    health = Verb(calls.health)
    session_patch = Verb(calls.session_patch)

    submit_task = Verb(calls.submit_task)
    list_tasks = Verb(calls.list_tasks)
    get_task = Verb(calls.get_task)
    cancel_task = Verb(calls.cancel_task)
