"""The blocks of the documentation that need several terminals, usual ports or foreign programs are run, too.

They are marked ``walk``. A test for each page takes its blocks in order and runs them as a reader would: a line that
serves runs in a terminal of its own until the page is done or serves there again. What a test cannot have is replaced:
the usual ports by free ones, and codex, docker, npm, pipx and grpcurl by small programs with these names.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx
import pytest
import uv

from debug_server.config.load import load
from debug_server.config.runner import RunnerConfig
from debug_server.config.workers import load_workers
from debug_server.runner.isolation import Wish, decide, report
from debug_server.runner.limits import Capabilities
from tests.gateway.gateway_process import PATIENT
from tests.repositories import make_repository
from tests.running import eventually, lasting_port
from tests.servers import ServerProcess, serving, unmount_below
from tests.test_docs import PAGES, ROOT, Block, blocks, name_of

SERVES = re.compile(r"\b(?:debug-server (?:tasks |gateway )?serve|runners\.probe_server)\b")
SERVING = re.compile(r"(?:serving|listening) on ")
SECONDS = 280

pytestmark = pytest.mark.timeout(600)


def walks(page: str) -> list[str]:
    """The texts of a page's blocks with the mark."""
    return [block.text for block in blocks(ROOT / page) if block.walk]


def statements(block: str) -> Iterator[str]:
    """What is typed at once: the lines after ``$`` of a console; a line that serves; the rest of a script."""
    if block.startswith("$ "):
        yield from re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)
        return
    rest: list[str] = []
    for line in block.splitlines():
        if SERVES.search(line):
            yield "\n".join(rest)
            yield line
            rest = []
        else:
            rest.append(line)
    yield "\n".join(rest)


class Reader:
    """A person with a folder, programs, variables and terminals, who types what a page says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "reader"
        self.programs = folder / "programs"
        home = folder / "home"
        data = self.folder / ".artifacts"  # otherwise a folder of this name above is used
        for place in (self.folder, data, self.programs, home):
            place.mkdir()
        own = [str(self.programs), str(Path(sys.executable).parent), os.environ["PATH"]]
        (home / ".bash_profile").write_text(f"PATH={shlex.quote(str(self.programs))}:$PATH\n")  # of login shells
        self.environ = {"PATH": os.pathsep.join(own), "HOME": str(home), "LANG": "C.UTF-8"}
        self.instead: dict[str, str] = {}
        self._terminals: dict[str, subprocess.Popen[bytes]] = {}

    def has(self, name: str, script: str) -> None:
        """Put a program into the PATH."""
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def types(self, block: str, *, stdin: str = "", **variables: str) -> str:
        """Run a block; returns everything that was printed."""
        return "".join(self._type(statement, stdin, variables) for statement in statements(block) if statement.strip())

    def runs(self, code: str, **variables: str) -> str:
        """Run a block of Python; returns what was printed."""
        return self._execute([sys.executable, "-W", "error", "-c", self._replaced(code)], "", variables)

    def _type(self, statement: str, stdin: str, variables: Mapping[str, str]) -> str:
        if SERVES.search(statement):
            self._serve(self._replaced(statement), variables)
            return ""
        return self._execute(["sh", "-euc", self._replaced(statement)], stdin, variables)

    def _replaced(self, text: str) -> str:
        for usual, ours in self.instead.items():
            text = text.replace(usual, ours)
        return text

    def _execute(self, argv: list[str], stdin: str, variables: Mapping[str, str]) -> str:
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env={**self.environ, **variables},
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{argv[-1]}\n{done.stdout}"
        return done.stdout

    def _serve(self, line: str, variables: Mapping[str, str]) -> None:
        """Run a line in a terminal of its own, where nothing else of this name runs, until it serves."""
        found = SERVES.search(line)
        assert found is not None
        self._end(found[0])
        out = self.folder.parent / f"{found[0].replace(' ', '-')}.out"
        with out.open("wb") as target:
            self._terminals[found[0]] = process = subprocess.Popen(
                ["sh", "-c", f"exec env {line}"],
                cwd=self.folder,
                env={**self.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=target,
                stderr=subprocess.STDOUT,
            )

        def serves() -> bool:
            assert process.poll() is None, out.read_text()
            return SERVING.search(out.read_text()) is not None

        eventually(serves, what=line)

    def _end(self, name: str) -> None:
        if (process := self._terminals.pop(name, None)) is not None:
            process.send_signal(signal.SIGTERM)
            process.wait(100)

    def leaves(self) -> None:
        """Close every terminal."""
        for name in list(self._terminals):
            self._end(name)
        unmount_below(self.folder)


@pytest.fixture
def reader(tmp_path: Path, nothing_left: None) -> Iterator[Reader]:
    """Of one page."""
    found = Reader(tmp_path)
    try:
        yield found
    finally:
        found.leaves()


@contextlib.contextmanager
def server_of(reader: Reader, *, grpc: bool = False) -> Iterator[ServerProcess]:
    """``debug-server serve`` at its usual address, as the page has it."""
    with serving(reader.folder / "server", variables={"HOME": reader.environ["HOME"]}, grpc=grpc) as server:
        reader.instead |= {"127.0.0.1:8000": f"127.0.0.1:{server.port}", ":50051": f":{server.grpc_port}"}
        yield server


def walk_tasks(reader: Reader) -> None:
    """Every way to serve host tasks, each mode, and the choice of a server."""
    serve, submit, choose, executors, open_up, modes = walks("docs/tasks.md")
    port, log = lasting_port(), reader.folder.parent / "codex.log"
    reader.has("my-agent", 'echo "$2 was told: $3"')
    reader.has("codex", f'{{ echo "$@"; cat; }} > {shlex.quote(str(log))}')
    reader.has("docker", 'test "$1" = run || exit 0; while [ "$1" != debian:stable-slim ]; do shift; done; shift; "$@"')
    reader.instead = {"localhost:48070": f"127.0.0.1:{port}", "tasks serve": f"tasks serve --port {port}"}
    here = {"DEBUG_SERVER_URL": f"http://127.0.0.1:{port}"}

    def ask(prompt: str) -> str:
        reader.types(f"debug-server tasks submit {prompt} 'say {prompt}' --follow", **here)
        return str(httpx.get(f"{here['DEBUG_SERVER_URL']}/tasks/{prompt}", timeout=SECONDS).json()["stdout"])

    reader.types(serve)
    said = reader.types(submit, **here)
    assert '"status":"success"' in said.replace(" ", "") and "say it again" in said
    with server_of(reader):
        assert reader.types(choose).count("TASK ") == 2
    shell, codex = executors.splitlines()
    reader.types(shell)
    assert ask("one") == "one was told: say one\n"
    reader.types(codex)
    ask("two")
    assert log.read_text() == "exec --skip-git-repo-check -\nsay two"
    reader.instead = {"172.17.0.1": f"127.0.0.2 --port {port}"}
    token = reader.types(open_up).split()[-1]
    away = f"http://127.0.0.2:{port}"
    assert httpx.get(f"{away}/tasks", headers={"Authorization": f"Bearer {token}"}, timeout=SECONDS).status_code == 200
    make_repository(reader.folder / "project")
    for folder in ("src", "docs"):
        (reader.folder / "project" / folder).mkdir()
    reader.instead = {"localhost:48070": f"127.0.0.2:{port}"}
    reader.types(f"cd project\n{modes}")
    for task in ("shared", "isolated", "sandboxed"):
        ended = httpx.get(f"{away}/tasks/{task}/wait?timeout=100", timeout=SECONDS).json()
        assert ended["status"] == "success", ended


def walk_dispatch(reader: Reader) -> None:
    """From the command line, from Python without a server, and over gRPC."""
    command_line, in_process, over_grpc = walks("docs/dispatch.md")
    shutil.copytree(ROOT / "config", reader.folder / "config")
    port = str(lasting_port())
    reader.environ["GOVERNOR_GRPC_PORT"] = port
    reader.instead = {":50051": f":{port}"}
    said = reader.types(command_line)
    assert "[runner] board queued" in said and "runner.exited" in said
    assert reader.runs(in_process).endswith("\nTrue\n")
    reader.types("sashi grpc start")
    try:
        assert "[runner] board queued" in reader.runs(over_grpc)
    finally:
        reader.types("sashi grpc stop")


def walk_runner_programs(reader: Reader) -> None:
    """The example probe and its governor."""
    (probe,) = walks("docs/runner-programs.md")
    shutil.copytree(ROOT / "config", reader.folder / "config")
    ports = {"PROBE_GRPC_PORT": str(lasting_port()), "GOVERNOR_GRPC_PORT": str(lasting_port())}
    try:
        said = reader.types(probe, PYTHONPATH=str(ROOT), **ports)
    finally:
        reader.types("sashi grpc stop", **ports)
    assert f"probe 127.0.0.1:{ports['PROBE_GRPC_PORT']} answers" in said and "[runner] probe queued" in said


def walk_gateway(reader: Reader) -> None:
    """Install, log in, serve, and ask with the official client."""
    start, client, provider = walks("docs/gateway.md")
    port, log = lasting_port(), reader.folder.parent / "npm.log"
    reader.has("npm", f'echo "$@" > {shlex.quote(str(log))}')
    fake = shlex.join([sys.executable, "-S", str(ROOT / "tests/gateway/fake_codex.py")])
    reader.has("codex", f'test "$1" = login || exec {fake} "$@"')
    reader.instead = {"gateway serve": f"gateway serve --port {port}", ":11435": f":{port}"}
    reader.types(start, **PATIENT)
    assert log.read_text() == "install -g @openai/codex@0.166.0\n"
    ready = f"http://127.0.0.1:{port}/readyz"
    eventually(lambda: httpx.get(ready, timeout=SECONDS).status_code == 200, what="a ready worker")
    assert reader.runs(client) == "echo: Hello\n"
    assert tomllib.loads(provider)["model_providers"]["mine"]["requires_openai_auth"] is False


def walk_grpc(reader: Reader) -> None:
    """List, describe and call."""
    (console,) = walks("docs/grpc.md")
    reader.has("grpcurl", f'exec {shlex.quote(sys.executable)} -m tests.grpcurl "$@"')
    with server_of(reader, grpc=True) as server:
        said = reader.types(console, PYTHONPATH=str(ROOT), DEBUG_SERVER_TOKEN=server.token)
    assert (
        "debug_server.v1.DebugServer.ExecCommand\n" in said
        and "\nargv\n" in said
        and b64encode(b"hello\n").decode() in said
    )


def walk_http(reader: Reader) -> None:
    """The error that is shown is the one that is answered."""
    (error,) = walks("docs/http.md")
    with server_of(reader) as server:
        headers = {"Authorization": f"Bearer {server.token}"}
        answer = httpx.post(f"{server.base_url}/api/v1/exec", json={"argv": "ls"}, headers=headers, timeout=SECONDS)
    assert answer.json() == json.loads(error)


def walk_service(reader: Reader) -> None:
    """The server's user makes a token, and its owner saves it."""
    (tokens,) = walks("docs/service.md")
    create, configure = tokens.splitlines()
    with server_of(reader) as server:
        token = reader.types(f"cd server\n{create}").split()[-1]
        # It gives up after five seconds: perhaps the machine stalls.
        eventually(lambda: "you are alice" in reader.types(configure, stdin=f"{token}\n"), what="an answer")
        assert server.base_url in reader.types("debug-server status")


def walk_terminal(reader: Reader) -> None:
    """A server is configured, asked, passed over and forgotten."""
    (console,) = walks("docs/terminal.md")
    with server_of(reader) as server:
        reader.instead["https://debug.example"] = server.base_url
        answers = f"{server.base_url} answers"  # within five seconds, unless the machine stalls
        eventually(lambda: answers in reader.types(console, stdin=f"{server.token}\n"), what="an answer")


def walk_mcp(reader: Reader) -> None:
    """The configurations are those of the README, which a client uses in the test of its tour."""
    local, over_http = walks("docs/mcp.md")
    shown = [json.loads(block.text) for block in blocks(ROOT / "README.md") if block.language == "json"]
    assert json.loads(local) in shown and json.loads(over_http) in shown


def walk_settings(reader: Reader) -> None:
    """Every file of settings that is shown is accepted."""
    (history,), (workspaces,), (workers,) = map(walks, ("docs/operations.md", "docs/workspaces.md", "docs/workers.md"))
    for name, text in (("history.toml", history), ("workspaces.toml", workspaces)):
        (reader.folder / name).write_text(text)
        load(RunnerConfig, files=[reader.folder / name])
    (reader.folder / "workers.toml").write_text(workers)
    assert load_workers(reader.folder / "workers.toml").keys() == {"search"}


def walk_security(reader: Reader) -> None:
    """The settings are accepted, the command is confined as it asks, and its card has the entries that are shown."""
    settings, command, card = walks("docs/security.md")
    (reader.folder / "isolation.toml").write_text(settings)
    assert load(RunnerConfig, files=[reader.folder / "isolation.toml"]).value.isolation.write == ("/srv/cache",)
    reader.types(command)
    shown = json.loads(card)
    assert shown.keys() == {"asked", "level", "network", "layers"}
    kernel = {"namespace": None, "landlock": 7, "seccomp": True}
    found = Capabilities(mechanism="session", controllers=frozenset(), root=False, isolation=kernel)
    assert report(decide(Wish(level="namespace", network="open", network_asked=False), found), found) == shown


def walk_newcomers(reader: Reader) -> None:
    """The targets are there and the tests are found; they are not run, because they would run this one."""
    (commands,) = walks("docs/newcomers.md")
    contributing = walks("README.md")[-1]
    reader.has("make", f'exec {shutil.which("make")} -n -C {shlex.quote(str(ROOT))} "$@"')
    bin_folder = reader.folder / ".venv/bin"
    bin_folder.mkdir(parents=True)
    tests = bin_folder / "pytest"
    here = shlex.quote(str(ROOT))
    collect = f'cd {here} && exec {shlex.quote(sys.executable)} -m pytest --collect-only -q tests/model "$@"'
    tests.write_text(f"#!/bin/sh\n{collect}\n")
    tests.chmod(0o755)
    (bin_folder / "debug-server").symlink_to(Path(sys.executable).parent / "debug-server")
    assert "test_log_stream.py" in reader.types(commands)
    assert "scripts/demo.py" in reader.types(contributing)


def walk_install(reader: Reader) -> None:
    """Each tool installs the package by its name; pipx and pip stand for uv, which is here.

    The package needs no others, so that no index is needed: ``tests/test_install.py`` installs it with them.
    """
    (console,), readme = walks("docs/install.md"), walks("README.md")[1]
    built, wheels = reader.folder.parent / "built", reader.folder.parent / "wheels"
    wheels.mkdir()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=SECONDS)
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(wheels / wheel.name, "w") as alone:
        for name in whole.namelist():
            data = whole.read(name)
            if name.endswith("/METADATA"):
                data = re.sub(rb"^Requires-Dist: .*\n", b"", data, flags=re.MULTILINE)
            alone.writestr(name, data)
    tool = f'{shlex.quote(uv.find_uv_bin())} tool install --force "$2"'
    reader.has("pipx", f'test "$1" = install && exec {tool}')
    reader.has("pip", f'test "$1" = install && exec {tool}')
    tools = reader.folder.parent / "tools"
    found = {
        "UV_OFFLINE": "1",
        "UV_FIND_LINKS": str(wheels),
        "UV_TOOL_DIR": str(tools),
        "UV_TOOL_BIN_DIR": str(tools / "bin"),
    }
    found |= {"UV_PYTHON": sys.executable, "UV_CACHE_DIR": str(tools / "cache")}
    reader.types(f"{console}{readme}", **found)
    assert (tools / "bin/debug-server").exists()


WALKS: dict[str, Callable[[Reader], None]] = {
    "docs/dispatch.md": walk_dispatch,
    "docs/gateway.md": walk_gateway,
    "docs/grpc.md": walk_grpc,
    "docs/http.md": walk_http,
    "docs/install.md": walk_install,
    "docs/mcp.md": walk_mcp,
    "docs/newcomers.md": walk_newcomers,
    "docs/operations.md": walk_settings,
    "docs/runner-programs.md": walk_runner_programs,
    "docs/security.md": walk_security,
    "docs/service.md": walk_service,
    "docs/tasks.md": walk_tasks,
    "docs/terminal.md": walk_terminal,
}
ELSEWHERE = {  # pages whose walks are run with those of another page, or by another module
    "README.md": "tests/test_tour.py, walk_install, walk_newcomers",
    "docs/workers.md": "walk_settings",
    "docs/workspaces.md": "walk_settings",
}


@pytest.mark.parametrize("page", WALKS)
def test_a_page_is_walked(page: str, reader: Reader) -> None:
    """Its blocks do what they say."""
    WALKS[page](reader)


def shown_but_not_run(page: Path) -> list[Block]:
    """Blocks of something that could be run or read by a program, and that no test takes."""
    kinds = ("sh", "bash", "python", "console", "json", "toml", "yaml")
    return [block for block in blocks(page) if block.language in kinds and not (block.run or block.walk)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_run(page: Path) -> None:
    """A command, a program or a file that is shown is run by a test; what is printed has no language, or ``text``."""
    assert shown_but_not_run(page) == []
    if any(block.walk for block in blocks(page)):
        assert name_of(page) in {*WALKS, *ELSEWHERE}
