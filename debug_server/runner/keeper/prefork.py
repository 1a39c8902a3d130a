"""The preforked child, which becomes the command.

It is forked ahead of time, waits for its orders on a socket, enters its groups, sets its limits and calls exec. So no
fork is needed when a command starts. If exec fails it sends the reason; on success the socket closes.
"""

from __future__ import annotations

import errno
import fcntl
import marshal
import os
import resource
import signal
import socket
import termios
from collections.abc import Callable

from debug_server.runner.keeper.linux import clone, set_parent_death_signal, set_process_name
from debug_server.runner.sandbox import capabilities, confine, namespaces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from debug_server.runner.keeper.mounts import Mounts

_SHOWN_FOLDERS = 3  # of a PATH, in errors
_RLIMITS = {
    "memory_bytes": resource.RLIMIT_AS,
    "cpu_seconds": resource.RLIMIT_CPU,
    "pids": resource.RLIMIT_NPROC,
    "open_files": resource.RLIMIT_NOFILE,
    "file_size_bytes": resource.RLIMIT_FSIZE,
}
READ_SIZE = 1 << 17
SPAWN_PATIENCE = 30.0  # seconds to wait for other processes to end, at the limit of processes
SPAWN_RETRY = 0.1
INIT_NAME = "ds-init"
NO_PROCESS = b"\0"  # on the orders socket, instead of an error: the child cannot be created yet
RESTORED_SIGNALS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGTERM,
    signal.SIGCHLD,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGXFSZ,
    signal.SIGXCPU,
)


def hard_limits() -> dict[str, int]:
    """The hard limits of this process, for limits that have one."""
    found = {name: resource.getrlimit(which)[1] for name, which in _RLIMITS.items()}
    return {name: hard for name, hard in found.items() if hard != resource.RLIM_INFINITY}


class Stdio:
    """The child's ends of stdin, stdout and stderr, and the parent's ends of the same pipes.

    A child that is forked before its orders are known needs all of them; else ``open_stdin`` comes with the orders.
    """

    def __init__(self) -> None:
        self.child_in = self.stdin = -1
        self.stdout, self.child_out = os.pipe2(os.O_CLOEXEC)
        self.stderr, self.child_err = os.pipe2(os.O_CLOEXEC)
        for fd in (self.stdout, self.stderr):
            _enlarge(fd)

    def open_stdin(self) -> None:
        """Create the pipe of stdin."""
        self.child_in, self.stdin = os.pipe2(os.O_CLOEXEC)

    def close_stdin(self) -> None:
        """Close the parent's end of stdin."""
        if self.stdin >= 0:
            os.close(self.stdin)

    def keep_parent_ends(self) -> None:
        """Close the child's ends; called in the keeper after the start."""
        for fd in (self.child_in, self.child_out, self.child_err):
            if fd >= 0:
                os.close(fd)

    def keep_child_ends(self) -> None:
        """Close the keeper's ends; called in the preforked child, which would otherwise keep its own pipes open."""
        self.close_stdin()
        for fd in (self.stdout, self.stderr):
            os.close(fd)


def _enlarge(pipe: int) -> None:
    """Double the pipe's size, which the keeper reads at once: a third fewer context switches with a busy writer."""
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, READ_SIZE)
    except OSError:  # this user's limit of pipe memory is reached
        pass


def fork_with_signals_held(fork: Callable[[], int]) -> int:
    """``fork``; signals that the child is sent before ``run`` has reset its handlers wait until then.

    Else the child would lose them: it begins with the keeper's handlers, and with signals that the keeper ignores.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, RESTORED_SIGNALS)
    pid = -1
    try:
        pid = fork()
    finally:
        if pid != 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def run(orders_socket: socket.socket, stdio: Stdio, mounts: Mounts | None, report: int | None = None) -> NoReturn:
    """Do what needs no orders, wait for them, then become the command; never returns.

    In a pid namespace of its own it becomes the namespace's init instead, which writes the command's end to ``report``.
    """
    set_parent_death_signal(signal.SIGKILL)
    os.setsid()
    _restore_signals()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(stdio.child_out, 1)
    os.dup2(stdio.child_err, 2)
    if mounts is not None:
        mounts.prepare()
    data = _receive_all(orders_socket)
    if not data:
        os._exit(0)  # the keeper ended before it sent orders
    try:
        _exec_command(marshal.loads(data), stdio, mounts, None if report is None else _Init(orders_socket, report))
    except OSError as error:
        orders_socket.sendall(explain(error).encode())
    except (ValueError, LookupError) as error:
        orders_socket.sendall(str(error.args[0]).encode())
    except Exception as error:  # noqa: BLE001 - the process boundary: nothing above could tell it
        orders_socket.sendall(f"cannot start: {type(error).__name__}: {error}".encode())
    os._exit(127)


def _receive_all(orders_socket: socket.socket) -> bytes:
    """Read until the end of the orders: the keeper shuts down its sending side."""
    pieces = []
    while piece := orders_socket.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


class _Init:
    """What the init of a command's pid namespace needs once the command has started."""

    __slots__ = ("orders_socket", "report")

    def __init__(self, orders_socket: socket.socket, report: int) -> None:
        self.orders_socket, self.report = orders_socket, report

    def serve(self, child: int) -> NoReturn:
        """Let go of the orders, whose end tells the keeper that the command has started, and stay."""
        self.orders_socket.close()
        namespaces.serve_as_init(child, self.report)


def _exec_command(orders: dict[str, Any], stdio: Stdio, mounts: Mounts | None, init: _Init | None) -> None:
    # Opened while the machine's files can be seen.
    terminal = os.open(orders["tty"], os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC) if orders["tty"] else None
    groups = _open_groups(orders["enter"])
    if mounts is not None:  # as late as possible: the copy must have the workspace's mount
        mounts.enter(orders["cwd"], containers=orders["containers"])
    plan = orders["isolation"]
    if init is not None:
        outside = _open_groups(orders["leave"])
        confine.enter_view(plan, *plan["ids"], own_processes=True)
        set_process_name(INIT_NAME)
        if terminal is None and not orders["rlimits"] and len(outside) == len(groups):
            _spawn_below_init(orders, stdio, groups, outside, init)
        _fork_below_init(init)
    elif plan is not None and plan["level"] == confine.NAMESPACE:
        confine.enter_further_namespaces(plan)
    _connect_stdio(terminal, orders, stdio)
    _set_attributes(orders)
    _write_own_pid(groups)  # from here on, usage is charged to the command
    for name, value in orders["rlimits"].items():
        _set_rlimit(_RLIMITS[name], value)
    if plan is not None:
        confine.give_up_rights(plan)
    start_from_path(lambda path: os.execve(path, orders["argv"], orders["env"]), orders["argv"][0], orders["env"])


def _open_groups(paths: list[str]) -> list[int]:
    return [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in paths]


def _write_own_pid(groups: list[int]) -> None:
    for group in groups:
        os.write(group, b"0")


def _set_attributes(orders: dict[str, Any]) -> None:
    if orders["cpus"]:
        os.sched_setaffinity(0, orders["cpus"])
    os.umask(orders["umask"])
    os.chdir(orders["cwd"])


def _spawn_below_init(
    orders: dict[str, Any], stdio: Stdio, groups: list[int], outside: list[int], init: _Init
) -> NoReturn:
    """Start the command from inside its groups, and stay as init of the pid namespace.

    Init is confined as the command is. A second fork of this process would cost more than everything else.
    """
    _set_attributes(orders)
    capabilities.hide_from_others()
    _write_own_pid(groups)
    confine.give_up_rights(orders["isolation"])
    try:
        child = spawn(orders, stdio)
    finally:
        _write_own_pid(outside)
    init.serve(child)


def _fork_below_init(init: _Init) -> None:
    """Stay as init of the pid namespace, and return in a child that becomes the command."""
    child = clone()
    if child != 0:
        capabilities.hide_from_others()
        capabilities.drop_all()
        init.serve(child)
    os.setsid()


def _connect_stdio(terminal: int | None, orders: dict[str, Any], stdio: Stdio) -> None:
    if terminal is not None:
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        for target in (0, 1, 2):
            os.dup2(terminal, target)
    elif orders["stdin"]:
        os.dup2(stdio.child_in, 0)


def _restore_signals() -> None:
    """Reset ignored signals, which survive exec: Python ignores two, and our parent may ignore more."""
    for number in RESTORED_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _set_rlimit(which: int, value: float) -> None:
    _, hard = resource.getrlimit(which)
    wanted = max(1, int(-(-value // 1)))
    ceiling = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if which == resource.RLIMIT_CPU:  # the soft limit sends SIGXCPU, which names the reason; the hard one kills
        resource.setrlimit(which, (ceiling, hard if hard != resource.RLIM_INFINITY else ceiling + 2))
    else:
        resource.setrlimit(which, (ceiling, ceiling))


def spawn(orders: dict[str, Any], stdio: Stdio) -> int:
    """Start the command's program in a new session; OSError or LookupError with the reason if that fails."""
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_DUP2, stdio.child_out, 1),
        (os.POSIX_SPAWN_DUP2, stdio.child_err, 2),
    ]
    if orders["stdin"]:
        actions.append((os.POSIX_SPAWN_DUP2, stdio.child_in, 0))
    else:
        actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))

    def start(program: str) -> int:
        return os.posix_spawn(
            program,
            orders["argv"],
            orders["env"],
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=RESTORED_SIGNALS,
        )

    return start_from_path(start, orders["argv"][0], orders["env"])


def start_from_path(start: Callable[[str], int], program: str, env: dict[str, str]) -> int:
    """Call ``start`` with the path that a shell would find for ``program``."""
    if "/" in program:
        return start(program)
    blocked: OSError | None = None
    for directory in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(directory or ".", program)
        if not os.access(path, os.F_OK):  # cheaper than a failed spawn
            continue
        try:
            return start(path)
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            blocked = error  # its interpreter is missing, or it is not a program: try the next one
    if blocked is not None:
        raise blocked
    hint = "; a line for a shell is run by: sh -c LINE" if " " in program else ""
    raise LookupError(f"program {program!r} was not found in PATH: {_some_folders(env.get('PATH', os.defpath))}{hint}")


def _some_folders(path: str) -> str:
    """The first folders of a PATH, which an environment adds, and how many more there are."""
    folders = path.split(os.pathsep)
    more = len(folders) - _SHOWN_FOLDERS
    shown = ", ".join(folders[:_SHOWN_FOLDERS])
    return f"{shown} and {more} more" if more > 0 else shown


def explain(error: OSError) -> str:
    """One sentence for a program that could not be started."""
    where = f" {os.fsdecode(error.filename)!r}" if error.filename else ""
    if error.errno == errno.ENOENT and error.filename and os.path.isfile(error.filename):
        return f"cannot start{where}: the interpreter in its first line, or its loader, does not exist"
    return f"cannot start{where}: {error.strerror}"
