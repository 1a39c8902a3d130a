"""The program as a whole: every operation has a command, it starts lean, and it explains itself."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from debug_server import __version__
from debug_server.messages import OPERATIONS
from debug_server.service.errors_table import ERRORS
from debug_server.surfaces import cli
from debug_server.surfaces.cli.main import COMMANDS, EXIT_STATUSES
from tests.repositories import make_repository
from tests.running import ROOT
from tests.surfaces.cli.conftest import Terminal

FOLDER = Path(cli.__file__).parent
HEAVY = ("starlette", "grpc", "mcp", "httpx", "pydantic", "rich", "debug_server.service", "debug_server.store")
# The backend's own streams and bytes, which are not single calls.
OF_THE_BACKEND = {"follow_log": "follow_log", "read_log": "stored_log", "follow_events": "follow_events"}


def used_names() -> set[str]:
    """Every attribute that a command's module takes of something: ``calls.x``, ``backend.x``."""
    trees = [ast.parse(path.read_bytes()) for path in FOLDER.glob("*.py") if "backend" not in path.name]
    return {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_has_a_command(operation: str) -> None:
    """Some command asks for each operation of the table."""
    assert OF_THE_BACKEND.get(operation, operation) in used_names()


def _modules_after(*arguments: str, folder: Path, **variables: str) -> set[str]:
    text = (
        "import atexit, json, os, sys\n"
        "atexit.register(lambda: os.write(9, json.dumps(list(sys.modules)).encode()))\n"
        "from debug_server.__main__ import main\n"
        "main()\n"
    )
    target = folder / "modules.json"
    with target.open("wb") as file:
        os.set_inheritable(file.fileno(), True)
        subprocess.run(
            ["/bin/sh", "-c", f'exec "$@" 9>{target}', "sh", sys.executable, "-c", text, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "DEBUG_SERVER_HOME": str(folder), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=100,
            check=False,
        )
    return set(json.loads(target.read_text()))


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], HEAVY),
        (["run", "--help"], ("rich", "starlette", "grpc", "mcp", "httpx", "debug_server.messages")),
        (["run", "--quiet", "--", "true"], ("starlette", "grpc", "mcp", "httpx", "debug_server.messages")),
        (
            ["--base-url", "http://127.0.0.1:1", "session", "list", "--limit", "x"],
            ("starlette", "grpc", "mcp", "httpx"),
        ),
    ],
    ids=["help", "help of run", "run", "remote"],
)
def test_commands_load_only_what_they_need(
    arguments: list[str], absent: tuple[str, ...], tmp_path: Path, nothing_left: None
) -> None:
    """The help loads no framework, no service and no store; ``run`` no server's parts and no client."""
    assert set(absent) & _modules_after(*arguments, folder=tmp_path) == set()


def test_completion_of_names_loads_no_command(tmp_path: Path) -> None:
    """A person waits for it at every press of the key; the options of a command need that command alone."""
    words = {"_DEBUG_SERVER_COMPLETE": "complete_bash", "COMP_WORDS": "debug-server se", "COMP_CWORD": "1"}
    assert set(HEAVY) & _modules_after(folder=tmp_path, **words) == set()
    words |= {"COMP_WORDS": "debug-server run --re", "COMP_CWORD": "2"}
    absent = {"rich", "starlette", "grpc", "mcp", "httpx", "debug_server.messages"}
    assert absent & _modules_after(folder=tmp_path, **words) == set()


@pytest.mark.parametrize(
    ("words", "completed"),
    [("ses", ["session"]), ("session cr", ["create"]), ("run --req", ["--require"]), ("nosuch x", [])],
)
def test_completion(alone: Terminal, words: str, completed: list[str]) -> None:
    """Of commands, of those in a group, and of options; nothing after a wrong name."""
    typed = f"debug-server {words}"
    asked = {"_DEBUG_SERVER_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "debug_server"],
        cwd=alone.folder,
        env={**alone.environ, **asked},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.split() == completed, done


def test_no_help_is_cut_off_or_has_bounds(alone: Terminal) -> None:
    """The sentence of a command in a list is whole, and a number has no range in symbols."""
    for name in COMMANDS:
        text = alone(name, "--help").out
        assert "..." not in text.partition("\nCommands:")[2], name
        assert "x>=" not in text and "<=x" not in text, name


def test_each_command_explains_itself(alone: Terminal) -> None:
    """``--help`` of the program lists every command and every exit status; each command has help of its own."""
    text = alone("--help").out
    assert all(f"\n  {name} " in text for name in COMMANDS)
    flat = " ".join(text.split())
    assert " ".join(EXIT_STATUSES.split()) in flat
    for name in COMMANDS:
        done = alone(name, "--help")
        assert done.status == 0, done.err
        assert "Usage: debug-server" in done.out


def test_groups_say_what_they_hold() -> None:
    """The sentence of each group in the program's help ends with its subcommands, in their order."""
    for name, (module, sentence) in COMMANDS.items():
        app = import_module(f"debug_server.surfaces.cli.{module}").app
        if isinstance(command := typer.main.get_command(app), TyperGroup) and name != "server":
            assert sentence.endswith(f": {', '.join(command.commands)}."), name


def test_every_exit_status_is_documented() -> None:
    """Each exit status that an error can have is named in the program's help."""
    words = EXIT_STATUSES.replace(";", " ").replace(",", " ").split()
    assert {str(mapping.exit_status) for mapping in ERRORS.values()} <= set(words)


def test_completion_is_offered(alone: Terminal) -> None:
    """The shell gets a completion script, and completion lists commands and their subcommands."""
    shown = Terminal(folder=alone.folder, variables={"_DEBUG_SERVER_COMPLETE": "source_bash"})()
    assert "debug-server" in shown.out + shown.err
    words = {"_DEBUG_SERVER_COMPLETE": "complete_bash", "COMP_WORDS": "debug-server session ", "COMP_CWORD": "2"}
    offered = Terminal(folder=alone.folder, variables=words)().out.split()
    assert {"create", "list", "close"} <= set(offered)


def test_doctor_says_what_is_there(alone: Terminal) -> None:
    """On a machine where commands run, doctor exits with 0 and names mechanism, limits, backend, builders and store."""
    found = alone("--json", "doctor")
    assert found.status == 0, found.out
    answer = found.json
    assert answer["can_run"] is True
    areas = {(item["area"], item["name"]): item for item in answer["findings"]}
    assert areas["commands", "run"]["state"] == "ok"
    for key in [("commands", "containment"), ("limits", "memory"), ("workspaces", "backend"), ("environments", "uv")]:
        assert areas[key]["detail"]
    assert all(item["remedy"] for item in answer["findings"] if item["state"] != "ok")
    text = alone("doctor").out
    assert text.endswith("commands can run here\n")


def test_doctor_says_when_nothing_can_run(alone: Terminal) -> None:
    """With a shell that does not exist, doctor names the reason and exits with 1."""
    (alone.folder / "config").mkdir()
    (alone.folder / "config" / "runner.toml").write_text('[runner]\ndefault_shell = "/nowhere/sh"\n')
    found = alone("doctor")
    assert found.status == 1
    assert "/nowhere/sh" in found.out
    assert found.out.endswith("commands cannot run here\n")


def test_mcp_speaks_over_the_standard_streams(alone: Terminal) -> None:
    """``mcp`` answers an initialisation on stdout with nothing else there, and ends with its stdin."""
    who = {"name": "test", "version": "1"}
    asked = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": who}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asked}
    done = alone("mcp", stdin=json.dumps(request) + "\n")
    assert done.status == 0, done.err
    assert done.json["result"]["serverInfo"]["name"] == "debug-server"


def test_a_reader_that_leaves_is_no_accident(alone: Terminal) -> None:
    """A pipe that is closed early ends the program without a traceback."""
    argv = [sys.executable, "-m", "debug_server", "--json", "doctor"]
    with subprocess.Popen(argv, cwd=alone.folder, env=alone.environ, stdout=-1, stderr=-1) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


def test_a_queue_is_worked_off_without_a_server(alone: Terminal, tmp_path: Path) -> None:
    """Commands left behind by calls that ended are carried on by later calls, in order, and none is lost."""
    alone("repo", "add", make_repository(tmp_path / "project"))
    session = alone("--json", "session", "create", "--commit", "main").json["id"]
    numbers = [
        alone("--json", "command", "submit", session, "--", "sh", "-c", f"sleep 0.3; echo {n} >> order").json["id"]
        for n in range(3)
    ]
    assert [alone("command", "wait", number).status for number in numbers] == [0, 0, 0]
    assert "+0\n+1\n+2\n" in alone("session", "diff", session).out
    alone("session", "close", session)


def test_version(alone: Terminal) -> None:
    """``--version`` prints name and version."""
    assert alone("--version").out == f"debug-server {__version__}\n"


def test_doctor_names_a_database_once_and_real_controllers(alone: Terminal) -> None:
    """A database that cannot be used is one failure with its own remedy; no remedy names a limit as a controller."""
    broken = Terminal(folder=alone.folder, variables={"DEBUG_SERVER_DB_URL": "sqlite:////proc/none/metadata.db"})
    found = broken("--json", "doctor").json["findings"]
    assert [item["name"] for item in found if item["state"] == "failed"] == ["database"]
    remedies = [item["remedy"] for item in found if item["area"] == "limits" and item["remedy"]]
    assert {word for remedy in remedies for word in remedy.split()} <= {
        *("delegate", "the", "controller", "memory", "cpu", "cpuacct", "pids")
    }


def test_wrong_numbers_are_told_in_plain_words(alone: Terminal) -> None:
    """Which option, which value, and what it should look like; the help names what an option takes."""
    done = alone("history", "--limit", "x")
    assert done.status == 2
    assert "Invalid value for '--limit': 'x' is not a whole number, such as 10." in done.err
    assert "--status STATUS" in alone("history", "--help").out
