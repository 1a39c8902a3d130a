"""Everything that a command could attack, set up around a real server, and a look at it afterwards."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from debug_server.runner.keeper.linux import is_alive, start_time
from tests.attacks.isolation import program
from tests.attacks.isolation.table import names
from tests.attacks.requests import open_session, wait_ended
from tests.attacks.target import AttackSetup, Target, target
from tests.other_users import as_user, owned_repository
from tests.running import carrying, eventually, new_mark

RUNS = (
    ("namespace", "open"),
    ("namespace", "loopback"),
    ("namespace", "none"),
    ("process", "open"),
    ("process", "none"),
    ("none", "open"),  # at the end: it does damage
)
_IN_OUTSIDE = ("overwrite", "truncate", "remove", "hard_link", "rename_in", "change_mode", "change_times")
_CONTENT = "precious\n"
_PROGRAM = Path(program.__file__)
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """What is outside, and belongs to the server's user."""

    outside: Path
    home: Path

    def fill(self, uid: int) -> None:
        """Put everything in its place."""
        self.outside.mkdir(exist_ok=True)
        (self.home / ".ssh").mkdir(parents=True, exist_ok=True)
        for path in (*(self.outside / name for name in (*_IN_OUTSIDE, "private", "change_attributes")), *self._home()):
            path.write_text(_CONTENT)
            path.chmod(0o600)
        for path in (self.outside, *self.outside.iterdir(), *self.home.rglob("*")):
            os.chown(path, uid, uid)

    def _home(self) -> list[Path]:
        return [self.home / name for name in (".profile", "secrets", ".ssh/id_ed25519")]

    def harm(self) -> dict[str, str]:
        """The attacks that left a trace."""
        left = {path.name for path in self.outside.iterdir()}
        found = {name: "is gone" for name in _IN_OUTSIDE if name not in left}
        for name in left & {"overwrite", "truncate", "hard_link"}:
            if (self.outside / name).read_text() != _CONTENT:
                found[name] = "has another content"
        found |= dict.fromkeys(left - {*_IN_OUTSIDE, "private", "change_attributes"}, "was created")
        if (self.home / ".profile").read_text() != _CONTENT:
            found["home_start_up_file"] = "has another content"
        return {name.replace("_", "-"): what for name, what in found.items()}


class Victims:
    """A server with a session that is not the attacker's, and programs outside."""

    def __init__(self, server: Target, client: httpx.Client, folders: Folders) -> None:
        self.server, self.client, self.folders = server, client, folders
        self.facts: dict[str, Any] = {}
        self._pids: dict[str, tuple[int, int]] = {}

    def start_neighbour(self) -> None:
        """Another session with a file, a log and a running command."""
        mark = new_mark("neighbour")
        session = self.client.post("/sessions", json={"repository": "project", "commit_sha": "HEAD"}).json()
        line = 'echo mine > secret.txt; echo mine > "$TMPDIR/secret.txt"; pwd; echo ready; sleep 600'
        asked = {"argv": ["sh", "-c", f"{line} # {mark}"], "env": {"NEIGHBOURS_SECRET": "mine"}}
        answer = self.client.post(f"/sessions/{session['id']}/commands", json=asked)
        command = answer.json()["id"]
        said = eventually(lambda: self._said(command, "ready"), what="a running neighbour")
        keeper = self.server.data / "keepers"
        handle = eventually(lambda: self._handle(keeper, command), what="the neighbour's keeper")
        self.remember("keeper", handle[1])
        self.remember("neighbour", max(carrying(mark)))
        self.facts |= {
            "workspace": said.splitlines()[0],
            "other_session": session["id"],
            "log": str(next((self.server.data / "logs" / str(session["id"])).glob("*.log"))),
            "keeper_socket": str(handle[0] / "control.sock"),
        }

    def _said(self, command: int, last: str) -> str | None:
        log = self.client.get(f"/commands/{command}/log").text
        return log if last in log else None

    def _handle(self, keepers: Path, command: int) -> tuple[Path, int] | None:
        for path in keepers.glob(f"{command}-*/handle.json"):
            with contextlib.suppress(ValueError, OSError):
                return path.parent, json.loads(path.read_text())["keeper"]["pid"]
        return None

    def remember(self, who: str, pid: int) -> None:
        """A process outside, which must live on."""
        started = start_time(pid)
        assert started is not None
        self._pids[who] = pid, started
        self.facts[who] = pid, started

    def attack(self, level: str, network: str) -> dict[str, Any]:
        """Every attack in one command of a new session: what each got, what it harmed, and the exit record."""
        session = open_session(self.client)
        argv = ["python3", "program.py", json.dumps(self.facts), *names(level, network)]
        asked: dict[str, Any] = {"argv": argv, "isolation": level}
        if level != "none":
            asked["network"] = network
        answer = self.client.post(f"/sessions/{session}/commands", json=asked)
        assert answer.status_code == 201, answer.text
        ended = wait_ended(self.client, answer.json()["id"], 250)
        log = self.client.get(f"/commands/{ended['id']}/log").text
        said = json.loads(log[log.index("{") :]) if ended["exit_code"] == 0 else {"broken": log[-3000:]}
        harm = self.folders.harm() | self._poison() | self._dead()
        self.folders.fill(self.server.setup.uid)
        return said | {"harm": harm, "exit": ended["exit"]}

    def _poison(self) -> dict[str, str]:
        places = (*self.server.data.glob("/".join(["worktrees/*/.pool-*/trees/*", "root", "poison_*"])),)
        places += (*self.server.data.glob("repos/*/poison_*"), *self.server.data.glob("repos/*/objects/poison_*"))
        places += (*self.server.data.glob("envs/poison_*"), *Path(self.facts["cache"]).glob("poison_*"))
        return {path.name.replace("_", "-"): f"{path} was created" for path in places}

    def _dead(self) -> dict[str, str]:
        return {f"{who}s-signal": "has ended" for who, process in self._pids.items() if not is_alive(*process)}


@contextlib.contextmanager
def victims(setup: AttackSetup, containment: str) -> Iterator[Victims]:
    """A server of the setup's user, and everything around it."""
    cache = setup.root / "cache"
    cache.mkdir()
    os.chown(cache, setup.uid, setup.uid)
    variables = {"UV_CACHE_DIR": str(cache), "PATH": _PATH, "DEBUG_SERVER_RUNNER_CONTAINMENT": containment}
    variables["DEBUG_SERVER_ISOLATION_WORKSPACES"] = "namespace"  # the default, which campaigns of attacks change
    with contextlib.ExitStack() as stack:
        server_root = setup.root / "server"
        server_root.mkdir()
        os.chown(server_root, setup.uid, setup.uid)
        owned_repository(server_root / "project", setup.uid, {"program.py": _PROGRAM.read_text(), "a.txt": "hello\n"})
        server = stack.enter_context(target(setup, "server", variables=variables))
        client = stack.enter_context(server.client(timeout=60))
        folders = Folders(outside=setup.root / "outside", home=server.home)
        folders.fill(setup.uid)
        found = Victims(server, client, folders)
        found.facts |= {
            "data": str(server.data),
            "home": str(server.home),
            "outside": str(folders.outside),
            "cache": str(cache),
            "port": server.port,
        }
        found.facts |= stack.enter_context(_listeners(setup.root))
        found.facts |= stack.enter_context(_shared_memory(setup.uid))
        found.remember("server", server.pid)
        found.remember("stranger", stack.enter_context(_stranger(setup, folders)))
        found.start_neighbour()
        yield found


@contextlib.contextmanager
def _stranger(setup: AttackSetup, folders: Folders) -> Iterator[int]:
    """A program of the server's user that has nothing to do with the server."""
    process = as_user(setup.uid, ["sleep", "600"], cwd=folders.outside, env={"STRANGERS_SECRET": "mine"})
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def _shared_memory(uid: int) -> Iterator[dict[str, Any]]:
    key = int.from_bytes(os.urandom(3), "big") | 1
    number = _libc.shmget(key, 4096, 0o1666)
    assert number >= 0, os.strerror(ctypes.get_errno())
    name = new_mark("isolation")
    paths = [Path(folder, name) for folder in ("/dev/shm", "/tmp")]
    try:
        for path in paths:
            path.write_text(_CONTENT)
            os.chown(path, uid, uid)
        yield {"ipc_key": key, "shared_memory": name}
    finally:
        _libc.shmctl(number, 0, None)
        for path in paths:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _listeners(root: Path) -> Iterator[dict[str, Any]]:
    """Programs outside that answer whoever reaches them."""
    name, path = new_mark("abstract"), root / "listener.sock"
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        unix, abstract = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        unix.bind(str(path))
        path.chmod(0o777)
        abstract.bind(f"\0{name}")
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        listeners = [tcp, unix, abstract]
        port6 = 0
        with contextlib.suppress(OSError):
            tcp6 = stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6))
            port6 = tcp6.getsockname()[1]
            listeners.append(tcp6)
        for listener in listeners:
            if listener.family == socket.AF_UNIX:
                listener.listen()
            threading.Thread(target=_answer, args=(listener,), daemon=True).start()
        threading.Thread(target=_answer_datagrams, args=(udp,), daemon=True).start()
        yield {
            "tcp": tcp.getsockname()[1],
            "tcp6": port6,
            "udp": udp.getsockname()[1],
            "unix_socket": str(path),
            "abstract_socket": name,
        }
        for listener in (*listeners, udp):
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def _answer(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with contextlib.suppress(OSError), connection:
                connection.recv(100)
                connection.sendall(b"mine")


def _answer_datagrams(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            _, sender = listener.recvfrom(1000)
            if not sender:
                return
            listener.sendto(b"mine", sender)
