"""The documentation is true: its examples run, its links lead somewhere, its tables say what the code says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distribution
from itertools import dropwhile, groupby
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from debug_server.model import ExitReason, ExitRecord, status_for
from debug_server.surfaces.cli.main import LazyCommands
from debug_server.surfaces.cli.outcome import exit_status
from debug_server.telemetry import METRICS
from tests.running import lasting_port
from tests.servers import serving

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
FOLDERS = ("debug_server", "runners", "tests", "docs", "scripts", "config", "requirements", "benchmarks", ".ci")
PACKAGES = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
WITHOUT_VALUE = ("-h", "--help", "--version", "--install-completion", "--json", "--local")  # of every command
SECONDS = 280  # a few dozen processes, on a machine that may be busy

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block of a page."""

    language: str
    run: bool
    server: bool  # run beside a server of its own
    walk: bool  # run by tests/test_walks.py
    text: str


def name_of(page: Path) -> str:
    """A page in the list of tests."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page; those with ``run`` after their language are executed, ``run server`` with one.

    Those with ``walk`` are executed by ``tests/test_walks.py``.
    """
    found = [(language, mark.split(), text) for language, mark, text in FENCE.findall(page.read_text())]
    assert all(mark in ([], ["run"], ["run", "server"], ["walk"]) for _, mark, _ in found), page
    return [
        Block(language=name, run="run" in mark, server="server" in mark, walk="walk" in mark, text=text)
        for name, mark, text in found
    ]


def program(page: Path, language: str, *, server: bool = False) -> str:
    """A page's runnable blocks of one language, as one program: those that need a server, or the others."""
    found = [block for block in blocks(page) if block.run and block.language == language and block.server == server]
    return "\n".join(block.text for block in found)


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", page.read_text())


def repack(name: str, folder: Path) -> None:
    """Make a wheel of an installed package again, so that examples need no package index."""
    package = distribution(name)
    kept = [file for file in package.files or [] if ".." not in file.parts and "__pycache__" not in file.parts]
    with zipfile.ZipFile(folder / f"{name}-{package.version}-py3-none-any.whl", "w") as wheel:
        for file in kept:
            data = file.read_binary()
            if file.name == "RECORD":
                data = b"".join(
                    line for line in data.splitlines(keepends=True) if b".." not in line and b".pyc" not in line
                )
            wheel.writestr(str(file), data)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pytest and what it needs, as wheels."""
    folder = tmp_path_factory.mktemp("wheels")
    for name in PACKAGES:
        repack(name, folder)
    return folder


@pytest.fixture
def environ(tmp_path: Path, wheels: Path) -> dict[str, str]:
    """What a person's shell has: our programs in the PATH, a home of their own, and packages from ``wheels`` alone."""
    home = tmp_path / "home"
    home.mkdir()
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "UV_FIND_LINKS": str(wheels),
        "UV_OFFLINE": "1",
    }


def execute(argv: list[str], environ: dict[str, str], cwd: Path) -> str:
    """Run a program that must end with 0 within its time; returns everything it said."""
    done = subprocess.run(
        argv,
        cwd=cwd,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "README.md" and any(block.run for block in blocks(page))],
    ids=name_of,
)
def test_examples_run(page: Path, tmp_path: Path, environ: dict[str, str]) -> None:
    """A page's marked shell lines, and then its marked Python lines, run from top to bottom without an error."""
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copytree(ROOT / "config", folder / "config")
    run_blocks(page, environ | {"GOVERNOR_GRPC_PORT": str(lasting_port())}, folder, server=False)
    if any(block.server for block in blocks(page)):
        with serving(tmp_path / "server", variables={"HOME": environ["HOME"]}, grpc=True) as server:
            variables = {
                "DEBUG_SERVER_URL": server.base_url,
                "DEBUG_SERVER_TOKEN": server.token,
                "DEBUG_SERVER_GRPC": f"127.0.0.1:{server.grpc_port}",
            }
            run_blocks(page, environ | variables, folder, server=True)


def run_blocks(page: Path, environ: dict[str, str], folder: Path, *, server: bool) -> None:
    """Run a page's shell blocks, then its Python blocks."""
    if shell := program(page, "sh", server=server):
        execute(["sh", "-euc", shell], environ, folder)
    if code := program(page, "python", server=server):
        execute([sys.executable, "-W", "error", "-c", code], environ, folder)


def test_only_make_targets_are_shown_without_being_run() -> None:
    """A shell line of the README is executed by the test above, or is a target of the Makefile."""
    lines = "".join(block.text for block in blocks(ROOT / "README.md") if block.language == "sh" and not block.run)
    assert [line for line in lines.splitlines() if not re.match(r"make [a-z-]+(\s|$)", line)] == []


def typed_lines(page: Path) -> Iterator[list[str]]:
    """The words after the name of our program, for each time that it is called in a page's fences."""
    for block in blocks(page):
        lines = block.text.replace("\\\n", " ").splitlines()
        if block.language == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        elif block.language != "sh":
            continue
        for line in lines:
            if re.search(r"\b(debug-server|sashi) ", line):
                yield from calls_in(line)


def calls_in(line: str) -> Iterator[list[str]]:
    """The words after the name of our program, for each time that a line of a shell calls it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    for is_operator, words in groupby(lexer, lambda word: set(word) <= set("();<>|&")):
        called = [] if is_operator else list(dropwhile(lambda word: re.match(r"\w+=", word), words))
        if called and called[0] in ("debug-server", "sashi"):
            yield called[1:]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name_of)
def test_commands_and_options_exist(page: Path) -> None:
    """Also in lines that would need a server, npm or docker: each command and each option is one of the program."""
    for words in typed_lines(page):
        command: Any = LazyCommands()
        waiting = list(words)
        while waiting and (word := waiting.pop(0)) != "--":
            name = word.partition("=")[0]
            if name in WITHOUT_VALUE:
                continue
            if word.startswith("-") and word != "-":
                known = next((item for item in command.params if name in (*item.opts, *item.secondary_opts)), None)
                assert known is not None or name == "--base-url", f"{words}: there is no option {name}"
                if name == word and not getattr(known, "is_flag", False):
                    waiting.pop(0)
            elif isinstance(command, TyperGroup):
                command = command.get_command(typer.Context(command), word)
                assert command is not None, f"{words}: there is no command {word}"
            elif not command.context_settings.get("allow_interspersed_args", True):
                break  # the words of another program


def test_the_demonstration_succeeds(tmp_path: Path, environ: dict[str, str]) -> None:
    """``scripts/demo.py`` ends with 0, shows every stage, and leaves nothing in the temporary folder."""
    if subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "-q", "--verify", "HEAD"], capture_output=True, check=False
    ).returncode:
        pytest.skip("the project is not in a git repository")
    if not (ROOT / ".venv/bin/python").exists():
        pytest.skip("the demonstration runs in .venv, which `make setup` makes")
    places = tmp_path / "tmp"
    places.mkdir()
    said = execute([sys.executable, "scripts/demo.py"], environ | {"TMPDIR": str(places)}, ROOT)
    for text in ("1 passed", "environment: reused", "timed_out: ran longer than 1 s", "Everything ended as it should."):
        assert text in said
    assert list(places.iterdir()) == []


def test_the_demonstration_stops_at_its_first_failure(tmp_path: Path, environ: dict[str, str]) -> None:
    """Without packages its first step fails, which is told once, no other step is run, and its status is not 0."""
    if not (ROOT / ".venv/bin/python").exists():
        pytest.skip("the demonstration runs in .venv, which `make setup` makes")
    environ |= {"UV_FIND_LINKS": str(tmp_path), "UV_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "scripts/demo.py"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 1
    assert "== 1. " in done.stdout and "== 2. " not in done.stdout
    assert done.stdout.count("UV_DEFAULT_INDEX") == 1, done.stdout


def slug(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """The anchors that a page has."""
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_resolve(page: Path) -> None:
    """Each link to a file leads to one, and each anchor to a heading of it."""
    broken = []
    for target in LINK.findall(prose(page)):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        place = (page.parent / path).resolve() if path else page
        if not place.exists() or (anchor and anchor not in anchors(place)):
            broken.append(target)
    assert broken == []


def named_files(page: Path) -> Iterator[str]:
    """What a page writes as code and what looks like a path in this repository."""
    for text in SPAN.findall(prose(page)):
        if text.split("/")[0] in FOLDERS and "/" in text and re.fullmatch(r"[\w./:-]+", text):
            yield text


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_files_exist(page: Path) -> None:
    """Each file that a page names is in the repository, and each test that it names is in its file."""
    missing = []
    for text in named_files(page):
        path, _, test = text.partition("::")
        if not (ROOT / path).exists() or (test and f"def {test}(" not in (ROOT / path).read_text()):
            missing.append(text)
    assert missing == []


@cache
def targets() -> set[str]:
    """The targets of the Makefile."""
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_targets_exist(page: Path) -> None:
    """Each ``make`` target that a page names is one."""
    assert set(re.findall(r"`make ([a-z-]+)", page.read_text())) <= targets()


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    section = (ROOT / page).read_text().partition(f"# {heading}\n")[2]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table is not None, f"{page} has no table below {heading!r}"
    return [[cell.strip(" `") for cell in line.strip("|").split(" | ")] for line in table[0].splitlines()[2:]]


def test_every_exit_reason_is_explained() -> None:
    """The table of reasons has each reason once, with the status it means and the exit status that the program has."""
    table = {row[0]: row[1:3] for row in rows("docs/spec.md", "Exit reasons")}
    ours, theirs = (ExitRecord(reason=ExitReason.SPAWN_FAILED, mechanism=name) for name in ("", "session"))
    own = {
        ExitReason.EXITED: "0",
        ExitReason.NONZERO_EXIT: "the command's own",
        ExitReason.SIGNALED: "128 + n",
        ExitReason.SPAWN_FAILED: f"{exit_status(theirs)}, or {exit_status(ours)}",
    }
    assert table == {
        reason.value: [status_for(reason).value, own.get(reason, str(exit_status(ExitRecord(reason=reason))))]
        for reason in ExitReason
    }


def test_every_metric_is_explained() -> None:
    """The table of metrics has each declared metric once, with its kind."""
    assert [row[:2] for row in rows("docs/operations.md", "Metrics")] == [[name, m.kind] for name, m in METRICS.items()]
