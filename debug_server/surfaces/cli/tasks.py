"""``debug-server tasks``: serves host tasks, or sends requests about them to a server."""

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

from debug_server.errors import InvalidInputError, UnavailableError, UnreachableError
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.invocation import Invocation, invocation
from debug_server.surfaces.cli.output import Column, print_notice
from debug_server.surfaces.cli.paging import DEFAULT_LIMIT, NEWEST, After, All, Limit, Part, read_pages, show_part
from debug_server.surfaces.cli.words import Grace, seconds

app = CommandsApp(no_args_is_help=True, help="Host tasks: serve, submit, list, get, wait, cancel, logs.")
PORT = 48070
DEFAULT_URL = f"http://127.0.0.1:{PORT}"
TaskArgument = Annotated[str, typer.Argument(metavar="TASK", help="the task's id")]
COLUMNS: list[Column] = [
    ("task", lambda row: row["task_id"]),
    ("status", lambda row: row["status"]),
    ("executor", lambda row: row["executor"]),
    ("exit", lambda row: row["exit_code"]),
    ("created", lambda row: row["created_at"]),
    ("message", lambda row: row["message"]),
]
_OPEN = ("queued", "running")
_WAIT_SECONDS = 60  # for one request; after its last output, a task's directories are still being removed
_STATUSES = {"success": 0, "canceled": 130}


@app.command()
def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="the address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 chooses a free port")] = PORT,
    tls_cert: Annotated[Path | None, typer.Option(help="a certificate chain, as PEM")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="its key, as PEM")] = None,
    grace: Grace = "10",
    config: Annotated[Path | None, typer.Option(help="a settings file; default: config/runner.toml")] = None,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR")] = "INFO",
) -> None:
    """Serve only host tasks until SIGTERM; running tasks continue. The HOST_RUNNER_* variables configure it."""
    status = invocation(context).programs.serve(
        host=host,
        port=port,
        grpc_port=None,
        tls_cert=tls_cert,
        tls_key=tls_key,
        grace_seconds=seconds(grace, flag="--grace"),
        config=config,
        log_level=log_level.upper(),
        parts=frozenset({"tasks"}),
    )
    raise typer.Exit(status)


@app.command()
def submit(
    context: typer.Context,
    task: TaskArgument,
    prompt: Annotated[str, typer.Argument(help="the prompt; - reads it from stdin")],
    run: Annotated[str, typer.Option(help="the id of the run that the task belongs to")] = "cli",
    timeout: Annotated[str, typer.Option(metavar="TIME", help="time limit, such as 90 (seconds) or 15m")] = "10m",
    mode: Annotated[str, typer.Option(help="the execution mode, such as no-workspace")] = "no-workspace",
    project: Annotated[
        Path | None,
        typer.Option("--project", "--repo", metavar="FOLDER", help="the project's root, for the workspace modes"),
    ] = None,
    lock: Annotated[list[Path] | None, typer.Option(help="a path to lock for this task; may be repeated")] = None,
    worktree: Annotated[Path | None, typer.Option(help="the path of the task's worktree")] = None,
    branch: Annotated[str | None, typer.Option(help="the worktree's branch")] = None,
    key: Annotated[str | None, typer.Option(help="an idempotency key: a repeated request gets the same task")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="print its output, and exit with its status")] = False,
) -> None:
    """Queue a task; with --follow the exit status is the task's.

    The server's settings name the program that gets the prompt. `debug-server exec` runs a program of your own, with
    --env and --cwd.
    """
    call = invocation(context)
    body: dict[str, Any] = {"task_id": task, "run_id": run, "execution_mode": mode}
    body["timeout_seconds"] = seconds(timeout, flag="--timeout")
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
            call.output().result(f"task {made['task_id']} is {made['status']}", made)
            return
        found = client.follow(task)
        print_notice(f"task {task}: {found['message']}")
    raise typer.Exit(_STATUSES.get(found["status"], found["exit_code"] or 1))


@app.command("list")
def list_all(
    context: typer.Context,
    status: Annotated[str | None, typer.Option(help="only tasks with this status, such as queued or success")] = None,
    limit: Limit = DEFAULT_LIMIT,
    every: All = False,
    after: After = 0,
) -> None:
    """List the tasks that you may see, newest first."""
    call = invocation(context)
    filters = {} if status is None else {"status": status}
    with _client(call) as client:
        part = read_pages(
            lambda **page: Part(**client.send("GET", "/tasks", params={**filters, "order": NEWEST, **page})),
            after=after,
            limit=limit,
            every=every,
        )
    show_part(call.output(), part, COLUMNS)


@app.command()
def get(context: typer.Context, task: TaskArgument) -> None:
    """Show a task."""
    call = invocation(context)
    with _client(call) as client:
        call.output().record(client.send("GET", _path(task)))


@app.command()
def wait(
    context: typer.Context,
    task: TaskArgument,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="the longest time to wait, such as 90 (seconds) or 15m")
    ] = "10m",
) -> None:
    """Wait until a task ends, or for the timeout, and show it."""
    call = invocation(context)
    params = {"timeout": seconds(timeout, flag="--timeout")}
    with _client(call) as client:
        call.output().record(client.send("GET", _path(task, "/wait"), params=params))


@app.command()
def cancel(context: typer.Context, task: TaskArgument) -> None:
    """Cancel a task. Returns when its processes and directories are gone."""
    call = invocation(context)
    with _client(call) as client:
        found = client.send("POST", _path(task, "/cancel"))
    call.output().result(f"task {task} is {found['status']}: {found['message']}", found)


@app.command()
def logs(
    context: typer.Context,
    task: TaskArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="print new output until the task ends")] = False,
) -> None:
    """Print a task's output unchanged. With --json, print one line of JSON for each chunk."""
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
        """Send a request; an error response is raised as its error class."""
        from debug_server.client.failures import error_from_response

        response = self._http.request(method, path, **more)
        if response.is_error:
            raise error_from_response(response)
        found: dict[str, Any] = response.json()
        return found

    def follow(self, task: str, *, lines: bool = False) -> dict[str, Any]:
        """Print a task's output as it arrives; returns the ended task. Reconnects if the server restarts."""
        import httpx

        from debug_server.client.exchange import delay_before
        from debug_server.client.following import RECONNECT_SECONDS

        answered, failures, offset = time.monotonic(), 0, 0
        while True:
            try:
                before = offset
                for end in self._copy_log(task, offset, follow=True, lines=lines):
                    offset, answered, failures = end, time.monotonic(), 0
                found = self.send("GET", _path(task, "/wait"), params={"timeout": _WAIT_SECONDS})
                answered, failures = time.monotonic(), 0
                # A server that shuts down ends the stream normally: the rest is read from the next server.
                if found["status"] not in _OPEN and (offset >= found["log_bytes"] or offset == before):
                    return found
            except (httpx.TransportError, UnavailableError) as error:
                if time.monotonic() - answered > RECONNECT_SECONDS:
                    raise UnreachableError(
                        f"no answer from {self._http.base_url} for {RECONNECT_SECONDS:g} s ({error}); task {task} "
                        f"continues; later run `debug-server tasks wait {task}` or `debug-server tasks logs -f {task}`"
                    ) from error
                if failures == 0:
                    print_notice(f"the connection to the server was lost; task {task} continues; reconnecting")
                failures += 1
                time.sleep(delay_before(failures - 1))

    def copy_log(self, task: str, *, lines: bool) -> None:
        """Copy the current log to stdout."""
        for _ in self._copy_log(task, 0, follow=False, lines=lines):
            pass

    def _copy_log(self, task: str, offset: int, *, follow: bool, lines: bool) -> Iterator[int]:
        """Copy the log to stdout from an offset, as bytes or lines of JSON; yields the offset that was reached."""
        from debug_server.client.failures import error_from_response
        from debug_server.client.following import LineSplitter

        path, whole = _path(task, "/log.ndjson" if lines else "/log"), LineSplitter()
        with self._http.stream("GET", path, params={"follow": follow, "offset": offset}) as response:
            if response.is_error:
                response.read()
                raise error_from_response(response)
            for data in response.iter_raw():
                for piece in whole.feed(data) if lines else [data]:
                    sys.stdout.buffer.write(piece + b"\n" if lines else piece)
                    offset = json.loads(piece)["next_offset"] if lines else offset + len(piece)
                sys.stdout.buffer.flush()
                yield offset


@contextmanager
def _client(call: Invocation) -> Iterator[_Client]:
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # do not import httpx's command line
    import httpx

    from debug_server.client.failures import no_answer
    from debug_server.sockets.trust import HttpTrust

    found = call.server_settings()
    url = found.server or DEFAULT_URL
    trust = HttpTrust(found.trusted, connection_error=httpx.ConnectError)
    hooks = [trust.hook] if found.must_check_user(url) else []
    headers = {"Authorization": f"Bearer {found.token}"} if found.token else {}
    timeout = httpx.Timeout(30.0, read=None)  # no read timeout: cancel and logs may answer late
    try:
        with httpx.Client(
            base_url=url, headers=headers, verify=found.verify_tls, timeout=timeout, event_hooks={"request": hooks}
        ) as http:
            yield _Client(http)
    except httpx.InvalidURL as error:
        raise InvalidInputError(f"the server's address {url!r} is not a URL: {error}") from error
    except httpx.TransportError as error:
        no_answer(url, error)  # raises for an address with the wrong scheme or port
        raise UnreachableError(
            f"no server answers at {url}: {error}; start one with `debug-server tasks serve`"
        ) from error
