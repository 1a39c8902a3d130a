"""``debug-server tasks``: host tasks, served alone or asked of a server."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from debug_server.errors import InvalidInputError, UnavailableError
from debug_server.surfaces.cli.invocation import Invocation, invocation
from debug_server.surfaces.cli.output import Column, tell

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Host tasks: serve, submit, list, get, cancel, logs."
)
PORT = 48070
DEFAULT_URL = f"http://127.0.0.1:{PORT}"
TaskArgument = Annotated[str, typer.Argument(metavar="TASK", help="a task's id")]
COLUMNS: list[Column] = [
    ("task", lambda row: row["task_id"]),
    ("status", lambda row: row["status"]),
    ("executor", lambda row: row["executor"]),
    ("exit", lambda row: row["exit_code"]),
    ("created", lambda row: row["created_at"]),
    ("message", lambda row: row["message"]),
]
_OPEN = ("queued", "running")
_WAIT_SECONDS = 60  # for one answer; a task's places are made tidy after its last byte
_STATUSES = {"success": 0, "canceled": 130}


@app.command()
def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="the address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")] = PORT,
    tls_cert: Annotated[Path | None, typer.Option(help="a certificate chain, as PEM")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="its key, as PEM")] = None,
    grace: Annotated[float, typer.Option(help="seconds from SIGTERM to the exit")] = 10.0,
    config: Annotated[Path | None, typer.Option(help="a settings file; default: config/runner.toml")] = None,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR")] = "INFO",
) -> None:
    """Serve host tasks alone until SIGTERM; what runs carries on under its keepers. HOST_RUNNER_* choose how."""
    status = invocation(context).programs.serve(
        host=host,
        port=port,
        grpc_port=None,
        tls_cert=tls_cert,
        tls_key=tls_key,
        grace_seconds=grace,
        config=config,
        log_level=log_level.upper(),
        parts=frozenset({"tasks"}),
    )
    raise typer.Exit(status)


@app.command()
def submit(
    context: typer.Context,
    task: TaskArgument,
    prompt: Annotated[str, typer.Argument(help="what is to be done; - is stdin")],
    run: Annotated[str, typer.Option(help="the run that it belongs to")] = "cli",
    timeout: Annotated[float, typer.Option(help="seconds that it may run")] = 600.0,
    mode: Annotated[str, typer.Option(help="where it runs")] = "no-workspace",
    project: Annotated[Path | None, typer.Option(help="the project's root, for the workspace modes")] = None,
    lock: Annotated[list[Path] | None, typer.Option(help="a path that it has for itself, any number")] = None,
    worktree: Annotated[Path | None, typer.Option(help="where its worktree goes")] = None,
    branch: Annotated[str | None, typer.Option(help="the worktree's branch")] = None,
    key: Annotated[str | None, typer.Option(help="an idempotency key: a repetition is the same task")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="wait; print its output, exit with its status")
    ] = False,
) -> None:
    """Queue a task; with --follow the exit status is the task's."""
    call = invocation(context)
    body: dict[str, Any] = {"task_id": task, "run_id": run, "timeout_seconds": timeout, "execution_mode": mode}
    body["prompt"] = sys.stdin.read() if prompt == "-" else prompt
    if project is not None:
        body["workspace"] = {
            "project_id": 1,
            "project_root": str(project.resolve()),
            "lock_paths": [str(path.resolve()) for path in lock or []],
            "worktree_path": None if worktree is None else str(worktree.resolve()),
            "git_branch": branch,
        }
    headers = {"Idempotency-Key": key} if key is not None else {}
    with _client(call) as client:
        made = client.send("POST", "/tasks/submit", json=body, headers=headers)
        if not follow:
            call.output().say(f"task {made['task_id']} is {made['status']}", made)
            return
        found = client.follow(task)
        tell(f"task {task}: {found['message']}")
    raise typer.Exit(_STATUSES.get(found["status"], found["exit_code"] or 1))


@app.command("list")
def list_all(
    context: typer.Context,
    status: Annotated[str | None, typer.Option(help="only those that are queued, running, success and so on")] = None,
    after: Annotated[int, typer.Option(help="the cursor that the page before gave")] = 0,
    limit: Annotated[int, typer.Option(help="how many at most")] = 100,
) -> None:
    """The tasks that you may see, oldest first."""
    call = invocation(context)
    params = {"after": after, "limit": limit, **({"status": status} if status is not None else {})}
    with _client(call) as client:
        page = client.send("GET", "/tasks", params=params)
    call.output().table(page["items"], COLUMNS)
    if page["next_after"] is not None:
        tell(f"there are more: --after {page['next_after']}")


@app.command()
def get(context: typer.Context, task: TaskArgument) -> None:
    """One task."""
    call = invocation(context)
    with _client(call) as client:
        call.output().record(client.send("GET", _path(task)))


@app.command()
def wait(
    context: typer.Context,
    task: TaskArgument,
    timeout: Annotated[float, typer.Option(help="seconds to wait at most")] = 600.0,
) -> None:
    """The task once it is over, or as it is at the deadline."""
    call = invocation(context)
    with _client(call) as client:
        call.output().record(client.send("GET", _path(task, "/wait"), params={"timeout": timeout}))


@app.command()
def cancel(context: typer.Context, task: TaskArgument) -> None:
    """End a task; answers when nothing of it is left."""
    call = invocation(context)
    with _client(call) as client:
        found = client.send("POST", _path(task, "/cancel"))
    call.output().say(f"task {task} is {found['status']}: {found['message']}", found)


@app.command()
def logs(
    context: typer.Context,
    task: TaskArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="wait for its end")] = False,
) -> None:
    """Its output, byte for byte; with --json a line of JSON for each chunk."""
    call = invocation(context)
    with _client(call) as client:
        if follow:
            client.follow(task, lines=call.as_json)
        else:
            client.copy_log(task, lines=call.as_json)


def _path(task: str, rest: str = "") -> str:
    return f"/tasks/{quote(task, safe='')}{rest}"


class _Client:
    """The few requests that tasks need."""

    def __init__(self, http: Any) -> None:
        self._http = http

    def send(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """One request; a refusal is raised as what it is."""
        from debug_server.client.failures import refusal

        response = self._http.request(method, path, **more)
        if response.is_error:
            raise refusal(response)
        found: dict[str, Any] = response.json()
        return found

    def follow(self, task: str, *, lines: bool = False) -> dict[str, Any]:
        """All of its output, as it comes, then the task; a server that goes away is waited for."""
        import httpx

        from debug_server.client.exchange import delay_before
        from debug_server.client.following import PATIENCE_SECONDS

        answered, failures, offset = time.monotonic(), 0, 0
        while True:
            try:
                before = offset
                for end in self._copied(task, offset, follow=True, lines=lines):
                    offset, answered, failures = end, time.monotonic(), 0
                found = self.send("GET", _path(task, "/wait"), params={"timeout": _WAIT_SECONDS})
                answered, failures = time.monotonic(), 0
                # A server that leaves ends the stream in good order: the rest is asked of the next one.
                if found["status"] not in _OPEN and (offset >= found["log_bytes"] or offset == before):
                    return found
            except (httpx.TransportError, UnavailableError) as error:
                if time.monotonic() - answered > PATIENCE_SECONDS:
                    raise UnavailableError(
                        f"no answer from {self._http.base_url} for {PATIENCE_SECONDS:g} s ({error}); task {task} "
                        f"carries on: when a server is back, `debug-server tasks wait {task}` or `tasks logs {task} -f`"
                    ) from error
                if failures == 0:
                    tell(f"the server went away; task {task} carries on, and so do we when it is back")
                failures += 1
                time.sleep(delay_before(failures - 1))

    def copy_log(self, task: str, *, lines: bool) -> None:
        """What is there, to stdout."""
        for _ in self._copied(task, 0, follow=False, lines=lines):
            pass

    def _copied(self, task: str, offset: int, *, follow: bool, lines: bool) -> Iterator[int]:
        """Copy from an offset on, in bytes or in lines of JSON; yields how far it has come."""
        from debug_server.client.failures import refusal
        from debug_server.client.following import LineSplitter

        path, whole = _path(task, "/log.ndjson" if lines else "/log"), LineSplitter()
        with self._http.stream("GET", path, params={"follow": follow, "offset": offset}) as response:
            if response.is_error:
                response.read()
                raise refusal(response)
            for data in response.iter_raw():
                for piece in whole.feed(data) if lines else [data]:
                    sys.stdout.buffer.write(piece + b"\n" if lines else piece)
                    offset = json.loads(piece)["next_offset"] if lines else offset + len(piece)
                sys.stdout.buffer.flush()
                yield offset


@contextmanager
def _client(call: Invocation) -> Iterator[_Client]:
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # a command line that nobody asked for
    import httpx

    from debug_server.sockets.trust import HttpTrust

    found = call.connection()
    url = found.server or DEFAULT_URL
    trust = HttpTrust(found.trusted, lost=httpx.ConnectError)
    hooks = [trust.hook] if found.needs_proof(url) else []
    headers = {"Authorization": f"Bearer {found.token}"} if found.token else {}
    timeout = httpx.Timeout(30.0, read=None)  # cancel and logs answer when there is something to say
    try:
        with httpx.Client(
            base_url=url, headers=headers, verify=found.verify_tls, timeout=timeout, event_hooks={"request": hooks}
        ) as http:
            yield _Client(http)
    except httpx.InvalidURL as error:
        raise InvalidInputError(f"the server's address {url!r} is no URL: {error}") from error
    except httpx.TransportError as error:
        raise UnavailableError(
            f"no server answers at {url}: {error}; start one with `debug-server tasks serve`"
        ) from error
