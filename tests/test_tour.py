"""The README's tour in two terminals does what it says, line by line, and its MCP configurations work as pasted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.running import ROOT, eventually
from tests.servers import unmount_below
from tests.surfaces.mcp.peers import call
from tests.test_docs import FENCE, execute, program, wheels

__all__ = ["wheels"]  # a fixture

PAGE = ROOT / "README.md"
README = PAGE.read_text()
TOUR = README.partition("## The server, in two terminals\n")[2].partition("\n## ")[0]
ANYTHING = "…"  # in the README: something that differs from one time to the next; alone in a line, any lines
SECONDS = 100

pytestmark = pytest.mark.timeout(600)


def fences(language: str, text: str = TOUR) -> list[str]:
    """The blocks of one language."""
    return [body for name, _, body in FENCE.findall(text) if name == language]


def console(block: str) -> list[tuple[str, str]]:
    """Each line that is typed, and what is printed below it."""
    parts = re.split(r"^\$ (.*(?:\\\n.*)*)\n", block, flags=re.MULTILINE)
    assert parts[0] == ""
    return list(zip(parts[1::2], parts[2::2], strict=True))


def matches(expected: str, said: str) -> bool:
    """Whether what was printed is what the README shows."""
    lines = (
        r"(?:.*\n)*" if line == f"{ANYTHING}\n" else ".*".join(map(re.escape, line.split(ANYTHING)))
        for line in expected.splitlines(keepends=True)
    )
    return re.fullmatch("".join(lines), said) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminals:
    """A folder with the project, a server in the first terminal, and what it printed."""

    folder: Path
    environ: dict[str, str]
    token: str
    port: int
    said: str

    def typed(self, text: str) -> str:
        """What the README says to type, for this server."""
        return re.sub(r"\bTOKEN\b", self.token, text).replace(":8000", f":{self.port}")

    def printed(self, text: str) -> str:
        """What was printed, as the README would have it."""
        return text.replace(self.token, "TOKEN").replace(f":{self.port}", ":8000").replace(str(self.folder), ANYTHING)


@pytest.fixture(scope="module")
def terminals(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Iterator[Terminals]:
    """Both terminals, where everything above the tour was run in the same folder, and the first has run its block."""
    folder = tmp_path_factory.mktemp("tour")
    environ = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home_of_somebody(folder)),
        "LANG": "C.UTF-8",
        "UV_FIND_LINKS": str(wheels),
        "UV_OFFLINE": "1",
    }
    execute(["sh", "-euc", program(PAGE, "sh")], environ, folder)
    *before, (typed, _) = console(fences("console")[0])
    assert all(said == "" for _, said in before)
    with (folder / "first.out").open("wb") as out, (folder / "first.err").open("wb") as err:
        lines = [*(line for line, _ in before), f"exec {typed} --port 0 --grpc-port 0"]
        argv = ["sh", "-ec", "\n".join(lines)]  # others may have the usual ports
        server = subprocess.Popen(argv, cwd=folder, env=environ, stdout=out, stderr=err)
    try:
        said = str(eventually(lambda: _complete(folder / "first.out"), SECONDS, "a serving server"))
        token, port = re.findall(r"once: (\S+)", said)[0], int(re.findall(r"http://127.0.0.1:(\d+)", said)[0])
        yield Terminals(folder=folder, environ=environ, token=token, port=port, said=said)
    finally:
        server.terminate()
        server.wait(SECONDS)
        unmount_below(folder)
    assert "Traceback" not in (folder / "first.err").read_text()


def home_of_somebody(folder: Path) -> Path:
    """A home folder in use: git shows diffs and signs as its user likes, and another server was configured before."""
    home = folder / "home"
    (home / ".debug-server").mkdir(parents=True)
    (home / ".gitconfig").write_text(
        "[color]\nui = always\n[diff]\nnoprefix = true\nexternal = false\n[commit]\ngpgSign = true\n"
    )
    (home / ".debug-server/config.toml").write_text('base_url = "http://127.0.0.1:9"\ntoken = "of another server"\n')
    return home


def _complete(path: Path) -> str | None:
    text = path.read_text()
    return text if re.search(r"gRPC on port \d+\n", text) else None


def shape(text: str) -> str:
    """What was printed, without durations, sizes, hashes, widths of columns and the folder."""
    text = re.sub(r"\(\d.*\)$", "(…)", text, flags=re.MULTILINE)  # what the run used, which depends on the machine
    text = re.sub(r"\S*/(?=project in )", "…/", text)
    text = re.sub(r"\b[\d.]+ ?(s|min|m|h)\b", "N", text)
    return re.sub(r" +", " ", re.sub(r"\b[0-9a-f]{12}\b", "HASH", text))


def test_the_first_screen(tmp_path: Path) -> None:
    """The picture of a run is what a run prints."""
    folder = tmp_path / "work"
    for name in (folder, tmp_path / "home", folder / ".artifacts"):
        name.mkdir()
    environ = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path / "home")}
    project = """
        git init -q project
        printf 'print("broken")\\n' > project/check.py
        git -C project add .
        git -C project -c user.name=me -c user.email=me@localhost commit -qm 'A bug'
        printf 'print("ok")\\n' > project/check.py
        git -C project diff > repair.patch
        git -C project checkout -q .
        debug-server history > /dev/null 2>&1  # the first use names the data folder
    """
    execute(["sh", "-euc", project], environ, folder)
    for typed, expected in console(fences("console", README)[0]):
        done = subprocess.run(
            ["sh", "-c", typed],
            cwd=folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert shape(done.stdout) == shape(expected), f"$ {typed}\n{done.stdout}"


def test_the_tour(terminals: Terminals) -> None:
    """Every line of the second terminal prints what stands below it, and so did that of the first one."""
    first, second = map(console, fences("console"))
    assert matches(first[-1][1], re.sub(r"port \d+", "port 50051", terminals.printed(terminals.said)))
    for typed, expected in second:
        done = subprocess.run(
            ["sh", "-c", terminals.typed(typed)],
            cwd=terminals.folder,
            env=terminals.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert matches(expected, terminals.printed(done.stdout)), f"$ {typed}\n{terminals.printed(done.stdout)}"
    (program,) = fences("python")
    argv = [sys.executable, "-W", "error", "-c", terminals.typed(program)]
    done = subprocess.run(argv, env=terminals.environ, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert "return a - b" in done.stdout


def test_mcp_configurations_work_as_pasted(terminals: Terminals, tmp_path: Path) -> None:
    """A client that is configured by any of the README's snippets has the tools, and is who it should be."""
    environ = {**terminals.environ, "HOME": str(tmp_path)}  # where nothing was configured before

    async def ask(configured: dict[str, Any]) -> Any:
        async with _client(configured, environ, tmp_path) as client:
            assert {"run", "read_log"} <= {tool.name for tool in (await client.list_tools()).tools}
        async with _client(_with_events(configured), environ, tmp_path) as client:
            return (await call(client, "who_am_i"))["name"]

    snippets = [json.loads(terminals.typed(text))["mcpServers"]["debug-server"] for text in fences("json")]
    assert [asyncio.run(ask(item)) for item in snippets] == ["local", "admin", "admin"]


def _with_events(configured: dict[str, Any]) -> dict[str, Any]:
    """The configuration with one more set of tools, which has who_am_i."""
    if "command" in configured:
        return {**configured, "args": [*configured["args"], "--toolsets", "core,events"]}
    return {**configured, "url": f"{configured['url']}?toolsets=core,events"}


@contextlib.asynccontextmanager
async def _client(configured: dict[str, Any], environ: dict[str, str], cwd: Path) -> Any:
    if "command" in configured:
        own = {**environ, **configured.get("env", {})}
        child = StdioServerParameters(command=configured["command"], args=configured["args"], env=own, cwd=cwd)
        async with Client(child, read_timeout_seconds=SECONDS) as client:
            yield client
        return
    async with (
        httpx2.AsyncClient(headers=configured["headers"], timeout=SECONDS) as http,
        Client(streamable_http_client(configured["url"], http_client=http)) as client,
    ):
        yield client
