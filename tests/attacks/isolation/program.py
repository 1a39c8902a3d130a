"""The attacks: a program that runs as a command, tries everything it is asked to, and prints what it got as JSON.

Usage: program.py FACTS NAME...: ``FACTS`` is JSON with what a real attacker would have to guess. It needs
nothing but the standard library of an old Python. Every attack runs in a process of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import glob
import http.client
import json
import mmap
import os
import platform
import pty
import shutil
import signal
import socket
import sqlite3
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from typing import Any

Facts = dict[str, Any]
Attack = Callable[[Facts], Any]
ATTACKS: dict[str, Attack] = {}
SUBJECTS: dict[str, str] = {}  # what each attack is about
_subjects: list[str] = []
_SECONDS = 20  # for one attack; a stalled machine may need them
_PATIENCE = 3.0  # for an answer that a refused packet never brings
_REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EAFNOSUPPORT)
_libc = ctypes.CDLL(None, use_errno=True)
_X86 = platform.machine() == "x86_64"


def subject(name: str) -> None:
    """What the attacks from here on are about."""
    _subjects.append(name)


def add(name: str, function: Attack) -> None:
    """Add an attack; what it returns is what it got, an OSError is a refusal."""
    ATTACKS[name], SUBJECTS[name] = function, _subjects[-1]


def attack(function: Attack) -> Attack:
    """Add an attack under the name of its function."""
    add(function.__name__.replace("_", "-"), function)
    return function


def read(path: str) -> str:
    """The start of a file."""
    with open(path, "rb") as file:
        return repr(file.read(200))


def opened(path: str, flags: int) -> str:
    """That a file could be opened; nothing is written to it."""
    os.close(os.open(path, flags))
    return f"opened {path}"


def names(path: str) -> str:
    """What is in a folder."""
    found = sorted(os.listdir(path))
    return ", ".join(found[:20])


def only_ours(facts: Facts, path: str, kept: str) -> str:
    """The entries of a folder of the server that belong to others."""
    return ", ".join(name for name in os.listdir(path) if name not in kept.split("/"))


def call(number: int, *arguments: Any) -> int:
    """A system call; OSError if it is refused, also where it fails for another reason only after the check."""
    whole = [ctypes.c_long(value) if isinstance(value, int) else value for value in (number, *arguments)]
    result: int = _libc.syscall(*whole)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def reached(number: int, *arguments: Any) -> str:
    """What the kernel's own code said of wrong arguments: then nothing kept the call from it."""
    try:
        return f"returned {call(number, *arguments)}"
    except OSError as error:
        if error.errno in _REFUSED:
            raise
        return f"reached the kernel: {error.strerror}"


def by_machine(x86_64: int, aarch64: int) -> int:
    """The number of a system call."""
    return x86_64 if _X86 else aarch64


def living(facts: Facts, who: str) -> int:
    """The pid of a process outside, if it can be seen under that pid, and not another one with the same number."""
    pid, started = facts[who]
    with open(f"/proc/{pid}/stat") as file:
        if int(file.read().rpartition(")")[2].split()[19]) != started:
            raise ProcessLookupError(errno.ESRCH, "another process has its pid")
    return int(pid)


def answer(family: int, kind: int, address: Any, words: bytes = b"hello") -> str:
    """What a server outside says."""
    with socket.socket(family, kind) as link:
        link.settimeout(_PATIENCE)
        link.connect(address)
        link.sendall(words)
        return repr(link.recv(200))


subject("Files of other sessions and of the server")


@attack
def other_sessions_file(facts: Facts) -> Any:
    return read(facts["workspace"] + "/secret.txt")


@attack
def other_sessions_folder(facts: Facts) -> Any:
    return names(facts["workspace"])


@attack
def other_sessions_layer(facts: Facts) -> Any:
    found = glob.glob(facts["data"] + "/worktrees/*/.pool-*/uppers/*/files/secret.txt")
    return [read(path) for path in found] or read(facts["workspace"] + "/secret.txt")


@attack
def other_sessions_write(facts: Facts) -> Any:
    return opened(facts["workspace"] + "/other_sessions_write", os.O_CREAT | os.O_WRONLY)


@attack
def other_sessions_temporary_folder(facts: Facts) -> Any:
    return read(facts["data"] + f"/private/{facts['other_session']}/tmp/secret.txt")


@attack
def other_sessions_log(facts: Facts) -> Any:
    return read(facts["log"])


@attack
def own_log(facts: Facts) -> Any:
    return [opened(path, os.O_WRONLY) for path in glob.glob(facts["data"] + "/logs/*/*.log")]


@attack
def list_logs(facts: Facts) -> Any:
    return names(facts["data"] + "/logs")


@attack
def list_workspaces(facts: Facts) -> Any:
    return only_ours(facts, facts["data"] + "/worktrees/project", os.getcwd())


@attack
def list_data_folder(facts: Facts) -> Any:
    return only_ours(facts, facts["data"], "worktrees/repos/envs/private")


@attack
def seal_key(facts: Facts) -> Any:
    return read(facts["data"] + "/data/seal.key")


@attack
def database(facts: Facts) -> Any:
    return read(facts["data"] + "/data/metadata.db")


@attack
def token_in_database(facts: Facts) -> Any:
    path = facts["data"] + "/data/metadata.db"
    opened(path, os.O_RDWR)
    with sqlite3.connect(path, timeout=5) as connection:
        return connection.execute("select count(*) from tokens").fetchone()


@attack
def owners_lock(facts: Facts) -> Any:
    return [opened(path, os.O_RDWR) for path in glob.glob(facts["data"] + "/owners/*")]


@attack
def link_to_data_folder(facts: Facts) -> Any:
    os.symlink(facts["data"], "link-to-data")
    return read("link-to-data/data/seal.key")


subject("Files of the user and the machine")


@attack
def ssh_key(facts: Facts) -> Any:
    return read(facts["home"] + "/.ssh/id_ed25519")


@attack
def home_folder(facts: Facts) -> Any:
    return "secrets" in os.listdir(facts["home"]) and names(facts["home"])


@attack
def home_start_up_file(facts: Facts) -> Any:
    with open(facts["home"] + "/.profile", "a") as file:
        file.write("home_start_up_file\n")
    return None  # it may be a folder of its own: the victim is looked at


@attack
def shadow_passwords(facts: Facts) -> Any:
    return opened("/etc/shadow", os.O_RDONLY)


@attack
def private_file(facts: Facts) -> Any:
    return read(facts["outside"] + "/private")


@attack
def temporary_folder(facts: Facts) -> Any:
    return facts["shared_memory"] in os.listdir("/tmp") and names("/tmp")


@attack
def logs_of_the_machine(facts: Facts) -> Any:
    return names("/var/log")


@attack
def services_of_the_machine(facts: Facts) -> Any:
    return names("/run") and only_ours(facts, "/run", "current-system/opengl-driver")


@attack
def shared_memory(facts: Facts) -> Any:
    return read("/dev/shm/" + facts["shared_memory"])


@attack
def messages_between_processes(facts: Facts) -> Any:
    _libc.shmat.restype = ctypes.c_void_p
    number = _libc.shmget(facts["ipc_key"], 1, 0)
    if number < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    return f"segment {number}"


subject("Devices and the kernel's files")


@attack
def disk_device(facts: Facts) -> Any:
    for path in sorted(glob.glob("/dev/[vsx]d[a-z]") + glob.glob("/dev/nvme*n1") + glob.glob("/dev/loop0")):
        return opened(path, os.O_RDONLY)
    return None


@attack
def kernel_messages(facts: Facts) -> Any:
    return opened("/dev/kmsg", os.O_RDONLY)


@attack
def kernel_messages_by_proc(facts: Facts) -> Any:
    descriptor = os.open("/proc/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    return stat.S_ISREG(os.fstat(descriptor).st_mode) and "opened /proc/kmsg"


@attack
def kernel_memory(facts: Facts) -> Any:
    with open("/proc/kcore", "rb") as file:
        return file.read(4)


@attack
def physical_memory(facts: Facts) -> Any:
    return opened("/dev/mem", os.O_RDONLY)


@attack
def core_pattern(facts: Facts) -> Any:
    return opened("/proc/sys/kernel/core_pattern", os.O_WRONLY)


@attack
def kernel_settings(facts: Facts) -> Any:
    return opened("/proc/sys/vm/drop_caches", os.O_WRONLY)


@attack
def host_name(facts: Facts) -> Any:
    socket.sethostname(socket.gethostname())
    return "set"


@attack
def system_request(facts: Facts) -> Any:
    return opened("/proc/sysrq-trigger", os.O_WRONLY)


@attack
def sys_files(facts: Facts) -> Any:
    return opened("/sys/kernel/uevent_helper", os.O_WRONLY) or opened("/sys/power/state", os.O_WRONLY)


@attack
def make_device(facts: Facts) -> Any:
    os.mknod("device", 0o600 | stat.S_IFBLK, os.makedev(254, 0))
    os.unlink("device")
    return "made"


subject("Control groups")


@attack
def leave_the_group(facts: Facts) -> Any:
    taken = []
    for path in ("/sys/fs/cgroup/cgroup.procs", *glob.glob("/sys/fs/cgroup/*/cgroup.procs")):
        try:
            taken.append(opened(path, os.O_WRONLY))
        except OSError:
            continue
    return taken


@attack
def change_own_limits(facts: Facts) -> Any:
    taken = []
    with open("/proc/self/cgroup") as file:
        for line in file:
            _, controller, path = line.rstrip("\n").split(":", 2)
            for name in ("memory.limit_in_bytes", "pids.max", "memory.max", "cgroup.procs"):
                try:
                    taken.append(opened(f"/sys/fs/cgroup/{controller or 'unified'}{path}/{name}", os.O_WRONLY))
                except OSError:
                    continue
    return taken


@attack
def groups_through_proc(facts: Facts) -> Any:
    return names(os.path.join("/proc", str(os.getppid()), "root", "sys/fs/cgroup"))


subject("Writing outside")


def write_outside(path: str) -> str:
    with open(path, "a") as file:
        file.write("x")
    return f"wrote {path}"


@attack
def write_by_path(facts: Facts) -> Any:
    return write_outside(facts["outside"] + "/write_by_path")


@attack
def overwrite(facts: Facts) -> Any:
    return write_outside(facts["outside"] + "/overwrite")


@attack
def truncate(facts: Facts) -> Any:
    os.truncate(facts["outside"] + "/truncate", 0)
    return "truncated"


@attack
def remove(facts: Facts) -> Any:
    os.unlink(facts["outside"] + "/remove")
    return "removed"


@attack
def write_by_link(facts: Facts) -> Any:
    os.symlink(facts["outside"], "link-out")
    return write_outside("link-out/write_by_link")


@attack
def swapped_link(facts: Facts) -> Any:
    """A folder that becomes a link and a folder again while another process writes through it."""
    os.mkdir("swapped")
    child = os.fork()
    if child == 0:
        while True:
            os.rename("swapped", "kept")
            os.symlink(facts["outside"], "swapped")
            os.unlink("swapped")
            os.rename("kept", "swapped")
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        try:
            with open("swapped/swapped_link", "a"):
                pass
        except OSError:
            continue
    os.kill(child, signal.SIGKILL)
    return None  # what came of it is seen outside


@attack
def hard_link(facts: Facts) -> Any:
    os.link(facts["outside"] + "/hard_link", "hard-link")
    return write_outside("hard-link")


@attack
def rename_in(facts: Facts) -> Any:
    os.rename(facts["outside"] + "/rename_in", "renamed")
    return "renamed"


@attack
def rename_out(facts: Facts) -> Any:
    write_outside("rename-me")
    os.rename("rename-me", facts["outside"] + "/rename_out")
    return "renamed"


@attack
def write_through_own_root(facts: Facts) -> Any:
    return write_outside("/proc/self/root" + facts["outside"] + "/write_through_own_root")


@attack
def write_through_parents_root(facts: Facts) -> Any:
    return write_outside(f"/proc/{os.getppid()}/root{facts['outside']}/write_through_parents_root")


@attack
def write_through_descriptor(facts: Facts) -> Any:
    descriptor = os.open(facts["outside"], os.O_PATH)
    return write_outside(f"/proc/self/fd/{descriptor}/write_through_descriptor")


@attack
def write_by_dots(facts: Facts) -> Any:
    return write_outside("../" * 40 + facts["outside"] + "/write_by_dots")


@attack
def change_mode(facts: Facts) -> Any:
    os.chmod(facts["outside"] + "/change_mode", 0o777)
    return "changed"


@attack
def change_times(facts: Facts) -> Any:
    os.utime(facts["outside"] + "/change_times", (1, 1))
    return "changed"


@attack
def change_attributes(facts: Facts) -> Any:
    os.setxattr(facts["outside"] + "/change_attributes", "user.x", b"y")
    return "changed"


@attack
def system_program(facts: Facts) -> Any:
    return [opened(path, os.O_WRONLY) for path in ("/usr/bin/git", "/etc/hosts")]


@attack
def system_folder(facts: Facts) -> Any:
    os.mkdir("/usr/share/debug-server-attack")
    os.rmdir("/usr/share/debug-server-attack")
    return "made"


@attack
def immutable_file(facts: Facts) -> Any:
    """A file that its owner cannot delete."""
    with open("immutable", "w") as file:
        found = bytearray(8)
        fcntl.ioctl(file, 0x80086601, found)
        (flags,) = struct.unpack("Q", found)
        fcntl.ioctl(file, 0x40086602, struct.pack("Q", flags | 0x10))
        fcntl.ioctl(file, 0x40086602, struct.pack("Q", flags))
        return "set"


subject("What the server shares between workspaces")


def poison(pattern: str, name: str) -> Any:
    """Add a file to each folder, and to one that was made writable first."""
    folders = [path for path in glob.glob(pattern) if os.path.isdir(path)]
    if not folders:
        raise FileNotFoundError(errno.ENOENT, pattern)
    for folder in folders:
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o777)
        write_outside(f"{folder}/{name}")
    return None  # the folder may be an empty one of the same name: the victim is looked at


@attack
def poison_shared_tree(facts: Facts) -> Any:
    return poison(facts["data"] + "/worktrees/project/.pool-*/trees/*/root", "poison_shared_tree")


@attack
def poison_mirror(facts: Facts) -> Any:
    return poison(facts["data"] + "/repos/project.bare/objects", "poison_mirror")


@attack
def poison_mirrors_configuration(facts: Facts) -> Any:
    return poison(facts["data"] + "/repos/project.bare", "poison_mirrors_configuration")


@attack
def poison_environments(facts: Facts) -> Any:
    return poison(facts["data"] + "/envs", "poison_environments")


@attack
def poison_package_cache(facts: Facts) -> Any:
    return poison(facts["cache"], "poison_package_cache")


@attack
def files_shared_by_hard_link(facts: Facts) -> Any:
    found = []
    for folder, _, files in os.walk(".git"):
        found += [f"{folder}/{name}" for name in files if os.lstat(f"{folder}/{name}").st_nlink > 1]
    return found


subject("Processes and descriptors")


@attack
def inherited_descriptors(facts: Facts) -> Any:
    return facts["descriptors"]


@attack
def folder_descriptors(facts: Facts) -> Any:
    return [number for number in (0, 1, 2) if stat.S_ISDIR(os.fstat(number).st_mode)]


@attack
def list_processes(facts: Facts) -> Any:
    return living(facts, "server")


@attack
def servers_command_line(facts: Facts) -> Any:
    return read(f"/proc/{living(facts, 'server')}/cmdline")


def proc_attacks(who: str) -> None:
    """The same attacks on each process outside."""

    def path(facts: Facts, name: str) -> str:
        return f"/proc/{living(facts, who)}/{name}"

    add(f"{who}s-environment", lambda facts: read(path(facts, "environ")))
    add(f"{who}s-memory", lambda facts: opened(path(facts, "mem"), os.O_RDWR))
    add(f"{who}s-root", lambda facts: names(path(facts, "root")))
    add(f"{who}s-working-folder", lambda facts: names(path(facts, "cwd")))
    add(f"{who}s-descriptors", lambda facts: os.readlink(path(facts, "fd/1")))
    add(f"{who}s-namespaces", lambda facts: os.readlink(path(facts, "ns/mnt")))
    add(f"{who}s-oom-score", lambda facts: opened(path(facts, "oom_score_adj"), os.O_WRONLY))
    add(f"{who}s-signal", lambda facts: may_signal(living(facts, who)))
    add(f"{who}s-trace", lambda facts: trace(living(facts, who)))
    add(f"{who}s-memory-by-call", lambda facts: peek(living(facts, who)))
    add(f"{who}s-signal-by-descriptor", lambda facts: signal_by_descriptor(living(facts, who)))
    add(f"{who}s-descriptor-theft", lambda facts: steal_descriptor(living(facts, who)))
    add(f"{who}s-limits", lambda facts: other_limits(living(facts, who)))
    add(f"{who}s-priority", lambda facts: renice(living(facts, who)))
    add(f"{who}s-processors", lambda facts: move_to_processors(living(facts, who)))


def trace(pid: int) -> str:
    seize, detach = 0x4206, 17
    _libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if _libc.ptrace(seize, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    _libc.ptrace(detach, pid, None, None)
    return "seized"


def peek(pid: int) -> str:
    """Read a byte that is certainly mapped: a refusal comes first, a wrong address later."""
    buffer = ctypes.create_string_buffer(1)

    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    ours, theirs = Vector(ctypes.addressof(buffer), 1), Vector(0x1000, 1)
    return reached(by_machine(310, 270), pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)


def signal_by_descriptor(pid: int) -> str:
    descriptor = call(434, pid, 0)
    call(424, descriptor, 0, None, 0)
    return "could signal"


def steal_descriptor(pid: int) -> str:
    return f"got {call(438, call(434, pid, 0), 1, 0)}"


def other_limits(pid: int) -> str:
    """Replace a limit by itself."""
    number, found = by_machine(302, 261), (ctypes.c_uint64 * 2)()
    call(number, pid, 7, None, ctypes.byref(found))
    call(number, pid, 7, ctypes.byref(found), None)
    return "set"


def may_signal(pid: int) -> str:
    os.kill(pid, 0)
    return "could signal"


def move_to_processors(pid: int) -> str:
    os.sched_setaffinity(pid, os.sched_getaffinity(0))
    return "set"


def renice(pid: int) -> str:
    os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid))
    return "set"


for _who in ("server", "keeper", "neighbour", "stranger"):
    proc_attacks(_who)


@attack
def root_of_the_first_process(facts: Facts) -> Any:
    return names("/proc/1/root" + facts["outside"])


@attack
def environment_of_the_first_process(facts: Facts) -> Any:
    return opened("/proc/1/environ", os.O_RDONLY)


@attack
def descriptors_of_the_first_process(facts: Facts) -> Any:
    return os.readlink("/proc/1/fd/0")


@attack
def memory_of_the_first_process(facts: Facts) -> Any:
    return opened("/proc/1/mem", os.O_RDWR)


@attack
def trace_the_first_process(facts: Facts) -> Any:
    return trace(1)


@attack
def end_the_first_process(facts: Facts) -> Any:
    os.kill(1, signal.SIGKILL)
    os.kill(1, signal.SIGSTOP)
    os.kill(1, signal.SIGTERM)
    return None  # whether it has ended is seen by what comes after


subject("Sockets, and the server without a token")


@attack
def keepers_socket(facts: Facts) -> Any:
    return talk(facts["keeper_socket"])


@attack
def own_keepers_socket(facts: Facts) -> Any:
    paths = [f"{facts['data']}/keepers/{number}-1/control.sock" for number in range(1, 50)]
    reached = []
    for path in paths:
        with contextlib.suppress(OSError):
            reached += [talk(path)] if path != facts["keeper_socket"] else []
    return reached


@attack
def keepers_folder(facts: Facts) -> Any:
    return names(facts["data"] + "/keepers")


def talk(path: str) -> str:
    here = os.getcwd()
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(_PATIENCE)
        try:
            with contextlib.suppress(OSError):
                os.chdir(os.path.dirname(path))  # a path of a socket has at most 108 bytes
            link.connect(os.path.relpath(path) if os.getcwd() != here else path)
        finally:
            os.chdir(here)
    return f"connected to {path}"


@attack
def other_programs_socket(facts: Facts) -> Any:
    return answer(socket.AF_UNIX, socket.SOCK_STREAM, facts["unix_socket"])


@attack
def abstract_socket(facts: Facts) -> Any:
    return answer(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + facts["abstract_socket"])


def ask_server(facts: Facts) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", facts["port"], timeout=30)
    connection.request("GET", "/sessions")
    status = connection.getresponse().status
    return status == 200 and f"answered with {status}"


@attack
def server_without_token(facts: Facts) -> Any:
    return ask_server(facts)


@attack
def server_from_a_daemon(facts: Facts) -> Any:
    return from_child(lambda: ask_server(facts), daemon=True)


@attack
def server_from_a_renamed_process(facts: Facts) -> Any:
    def renamed() -> Any:
        _libc.prctl(15, b"bash", 0, 0, 0)
        return ask_server(facts)

    return from_child(renamed, daemon=True)


_ASK = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=30)
connection.request("GET", "/sessions")
print(connection.getresponse().status)
"""


@attack
def server_without_environment(facts: Facts) -> Any:
    program = ["/usr/bin/env", "-i", "setsid", sys.executable, "-c", _ASK, str(facts["port"])]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=_SECONDS)
    return done.stdout.startswith("200") and done.stdout


@attack
def server_with_a_closed_table_of_files(facts: Facts) -> Any:
    """The process that holds the socket cannot be examined."""

    def hidden() -> Any:
        _libc.prctl(4, 0, 0, 0, 0)
        return ask_server(facts)

    return from_child(hidden, daemon=True)


def from_child(work: Callable[[], Any], *, daemon: bool) -> Any:
    """The result of work in a process without parents."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if daemon and os.fork() != 0:
            os._exit(0)
        try:
            os.write(writer, str(work() or "").encode())
        except OSError as error:
            os.write(writer, b"")
            del error
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        return file.read()


subject("Rights")


@attack
def capabilities(facts: Facts) -> Any:
    with open("/proc/self/status") as file:
        found = dict(line.split(":\t", 1) for line in file if line.startswith("Cap"))
    return [name for name in ("CapEff", "CapPrm", "CapInh", "CapAmb") if int(found[name], 16)]


@attack
def new_privileges(facts: Facts) -> Any:
    with open("/proc/self/status") as file:
        return "NoNewPrivs:\t1\n" not in file.read() and "not forbidden"


@attack
def file_capabilities(facts: Facts) -> Any:
    with open("capable", "w"):
        pass
    os.setxattr("capable", "security.capability", struct.pack("<IIIII", 0x02000001, 0xFFFFFFFF, 0, 0, 0))
    return "set"


@attack
def setuid_copy(facts: Facts) -> Any:
    """A program of another user: root gives it away, and its starter would become that user."""
    shutil.copy(shutil.which("id") or "/usr/bin/id", "own-id")
    os.chown("own-id", 12345, 12345)
    os.chmod("own-id", 0o4755)
    done = subprocess.run(["./own-id", "-u"], capture_output=True, text=True, check=False)
    return done.stdout.strip() == "12345" and done.stdout


@attack
def change_user(facts: Facts) -> Any:
    os.setresuid(12345, 12345, 12345)
    return "changed"


@attack
def change_groups(facts: Facts) -> Any:
    os.setgroups([0, 12345])
    return "changed"


@attack
def sudo(facts: Facts) -> Any:
    program = shutil.which("sudo")
    if program is None:
        return None
    done = subprocess.run([program, "-n", "id", "-u"], capture_output=True, text=True, check=False)
    return done.returncode == 0 and os.geteuid() != 0 and done.stdout


subject("Network")


@attack
def tcp(facts: Facts) -> Any:
    return answer(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", facts["tcp"]))


@attack
def tcp_by_ipv6(facts: Facts) -> Any:
    return answer(socket.AF_INET6, socket.SOCK_STREAM, ("::1", facts["tcp6"]))


@attack
def tcp_by_mapped_address(facts: Facts) -> Any:
    return answer(socket.AF_INET6, socket.SOCK_STREAM, ("::ffff:127.0.0.1", facts["tcp"]))


@attack
def tcp_by_zero_address(facts: Facts) -> Any:
    return answer(socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", facts["tcp"]))


@attack
def tcp_by_shell(facts: Facts) -> Any:
    line = f"exec 3<>/dev/tcp/127.0.0.1/{facts['tcp']} && echo hello >&3 && head -c 4 <&3"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=_SECONDS)
    return done.stdout


@attack
def tcp_fast_open(facts: Facts) -> Any:
    with socket.socket() as link:
        link.sendto(b"hello", 0x20000000, ("127.0.0.1", facts["tcp"]))
        return repr(link.recv(200))


@attack
def multipath_tcp(facts: Facts) -> Any:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as link:
        link.settimeout(_PATIENCE)
        link.connect(("127.0.0.1", facts["tcp"]))
        link.sendall(b"hello")
        return repr(link.recv(200))


@attack
def udp(facts: Facts) -> Any:
    return answer(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", facts["udp"]))


@attack
def name_service(facts: Facts) -> Any:
    """A question to a name server, as a way to tell a secret."""
    question = b"\0\1\1\0\0\1\0\0\0\0\0\0\6secret\7example\0\0\1\0\1"
    return answer(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", facts["udp"]), question)


@attack
def interfaces(facts: Facts) -> Any:
    """Those that lead elsewhere."""
    with open("/proc/net/dev") as file:
        found = [line.split(":")[0].strip() for line in file if ":" in line]
    return [name for name in found if name not in ("lo", "sit0", "tunl0", "ip6tnl0")]


@attack
def raw_socket(facts: Facts) -> Any:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
    return "made"


@attack
def packet_socket(facts: Facts) -> Any:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3).close()
    return "made"


@attack
def virtual_machine_socket(facts: Facts) -> Any:
    with socket.socket(40, socket.SOCK_STREAM):
        return "made"


@attack
def crypto_socket(facts: Facts) -> Any:
    with socket.socket(38, socket.SOCK_SEQPACKET):
        return "made"


@attack
def odd_socket_families(facts: Facts) -> Any:
    made = []
    for family in (3, 4, 5, 9, 11, 15, 18, 19, 21, 26, 29, 30, 31, 33, 35, 36, 37, 39, 41, 43, 44):
        try:
            socket.socket(family, socket.SOCK_DGRAM).close()
            made.append(family)
        except OSError:
            continue
    return made


@attack
def change_interfaces(facts: Facts) -> Any:
    """Ask for another size of packets on the loopback interface: the one that it has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        found = bytearray(struct.pack("16si20x", b"lo", 0))
        fcntl.ioctl(link, 0x8921, found)
        fcntl.ioctl(link, 0x8922, bytes(found))
    return "changed"


@attack
def firewall(facts: Facts) -> Any:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as link:
        link.bind((0, 0))
        link.settimeout(_PATIENCE)
        link.send(struct.pack("=IHHII4x", 20, 0x0A00 | 1, 1 | 4, 1, 0))
        kind, code = struct.unpack_from("=4xH10xi", link.recv(4096))
        if kind == 2 and -code in _REFUSED:
            raise OSError(-code, "netfilter")
        return f"answered {kind} {code}"


subject("System calls")


@attack
def user_namespace(facts: Facts) -> Any:
    return reached(by_machine(272, 97), 0x10000000)


@attack
def mount_namespace(facts: Facts) -> Any:
    return reached(by_machine(272, 97), 0x00020000)


@attack
def clone_into_namespace(facts: Facts) -> Any:
    pid = call(by_machine(56, 220), 0x10000000 | signal.SIGCHLD, None, None, None, None)
    if pid == 0:
        os._exit(0)
    return "made"


@attack
def clone3_into_namespace(facts: Facts) -> Any:
    arguments = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, signal.SIGCHLD)
    pid = call(435, ctypes.byref(arguments), 88)
    if pid == 0:
        os._exit(0)
    return "made"


@attack
def enter_namespace(facts: Facts) -> Any:
    descriptor = os.open(f"/proc/{os.getppid()}/ns/mnt", os.O_RDONLY)
    return reached(by_machine(308, 268), descriptor, 0)


def mounted(source: bytes | None, target: str, kind: bytes | None, flags: int) -> str:
    if _libc.mount(source, target.encode(), kind, ctypes.c_ulong(flags), None) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    _libc.umount2(target.encode(), 2)
    return "mounted"


@attack
def mount_folder(facts: Facts) -> Any:
    os.mkdir("mount-folder")
    return mounted(b"/", os.getcwd() + "/mount-folder", None, 0x1000)


@attack
def mount_memory(facts: Facts) -> Any:
    os.mkdir("mount-memory")
    return mounted(b"none", os.getcwd() + "/mount-memory", b"tmpfs", 0)


@attack
def mount_processes(facts: Facts) -> Any:
    os.mkdir("mount-processes")
    return mounted(b"none", os.getcwd() + "/mount-processes", b"proc", 0)


@attack
def mount_groups(facts: Facts) -> Any:
    os.mkdir("mount-groups")
    return mounted(b"none", os.getcwd() + "/mount-groups", b"cgroup2", 0)


@attack
def make_system_writable(facts: Facts) -> Any:
    if _libc.mount(None, b"/usr", None, ctypes.c_ulong(0x1020), None) != 0:
        raise OSError(ctypes.get_errno(), "remount")
    return "remounted"


@attack
def unmount(facts: Facts) -> Any:
    """With a flag that only asks."""
    return reached(by_machine(166, 39), b"/tmp", 4 | 1)


@attack
def change_root(facts: Facts) -> Any:
    os.chroot(".")
    return "changed"


@attack
def swap_root(facts: Facts) -> Any:
    return reached(by_machine(155, 41), b"nowhere", b"nowhere")


@attack
def mount_by_new_calls(facts: Facts) -> Any:
    return reached(430, b"tmpfs", 0)


@attack
def copy_mounts(facts: Facts) -> Any:
    return reached(428, -100, b"/", 1)


@attack
def move_mounts(facts: Facts) -> Any:
    return reached(429, -1, b"", -1, b"", 4)


@attack
def change_mounts(facts: Facts) -> Any:
    return reached(442, -100, b"nowhere", 0, (ctypes.c_uint64 * 4)(), 32)


@attack
def pick_mount(facts: Facts) -> Any:
    return reached(433, -100, b"nowhere", 0)


@attack
def open_by_handle(facts: Facts) -> Any:
    return reached(by_machine(304, 265), -100, (ctypes.c_uint32 * 34)(8, 1), 0)


@attack
def name_to_handle(facts: Facts) -> Any:
    handle, mount = (ctypes.c_uint32 * 34)(128), ctypes.c_int()
    return reached(by_machine(303, 264), -100, b"/", ctypes.byref(handle), ctypes.byref(mount), 0)


@attack
def add_key(facts: Facts) -> Any:
    return reached(by_machine(248, 217), b"user", b"debug-server-attack", b"x", 1, -2)


@attack
def list_keys(facts: Facts) -> Any:
    return reached(by_machine(250, 219), 0, -5, 0)


@attack
def bpf(facts: Facts) -> Any:
    return reached(by_machine(321, 280), 0, (ctypes.c_uint32 * 12)(2, 4, 4, 1), 48)


@attack
def page_fault_handler(facts: Facts) -> Any:
    return reached(by_machine(323, 282), 0)


@attack
def ring_of_calls(facts: Facts) -> Any:
    return reached(425, 1, ctypes.create_string_buffer(120))


@attack
def performance_events(facts: Facts) -> Any:
    attributes = (ctypes.c_uint32 * 32)(1, 128)
    return reached(by_machine(298, 241), ctypes.byref(attributes), -1, 0, -1, 0)


@attack
def load_module(facts: Facts) -> Any:
    return reached(by_machine(175, 105), b"x", 1, b"")


@attack
def load_module_from_file(facts: Facts) -> Any:
    return reached(by_machine(313, 273), -1, b"", 0)


@attack
def unload_module(facts: Facts) -> Any:
    return reached(by_machine(176, 106), b"no-such-module", os.O_NONBLOCK)


@attack
def load_kernel(facts: Facts) -> Any:
    return reached(by_machine(246, 104), 0, 1 << 20, None, 0)


@attack
def reboot(facts: Facts) -> Any:
    return reached(by_machine(169, 142), 0, 0, 0, None)


@attack
def swap_file(facts: Facts) -> Any:
    return reached(by_machine(167, 224), b"nowhere", 0)


@attack
def set_clock(facts: Facts) -> Any:
    return reached(by_machine(227, 112), 0, (ctypes.c_int64 * 2)(0, -1))


@attack
def kernel_log_call(facts: Facts) -> Any:
    return reached(by_machine(103, 116), 10, None, 0)


@attack
def quotas(facts: Facts) -> Any:
    return reached(by_machine(179, 60), 0x80000100, None, 0, None)


@attack
def accounting(facts: Facts) -> Any:
    return reached(by_machine(163, 89), b"nowhere")


@attack
def watch_all_files(facts: Facts) -> Any:
    return reached(by_machine(300, 262), 0, 0)


@attack
def calls_of_old_programs(facts: Facts) -> Any:
    """Calls that no program of today makes: ports, descriptor tables, cookies."""
    if not _X86:
        return None
    taken = []
    for number, arguments in {154: (1, None, 0), 172: (3,), 173: (0x80, 1, 1), 180: (0, None, None)}.items():
        try:
            taken.append(f"{number} {reached(number, *arguments)}")
        except OSError:
            continue
    return taken


@attack
def calls_with_short_pointers(facts: Facts) -> Any:
    """The x32 numbers, which a filter by number alone lets through."""
    return reached(0x40000000 | 39) if _X86 else None


_GET_PID_BY_INTERRUPT = bytes.fromhex("b814000000cd80c3")  # mov eax, 20; int 0x80; ret


@attack
def calls_of_32_bits(facts: Facts) -> Any:
    """The interrupt of 32-bit programs, whose numbers mean other calls."""
    if not _X86:
        return None
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(_GET_PID_BY_INTERRUPT)
    found = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    if found < 0:
        raise OSError(-found, os.strerror(-found))
    return f"pid {found}"


@attack
def terminal_input(facts: Facts) -> Any:
    """Type into the terminal, whose next reader may be a shell outside."""
    pid, master = pty.fork()
    if pid == 0:
        try:
            fcntl.ioctl(0, termios.TIOCSTI, b"x")
            os._exit(0)
        except OSError:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    os.close(master)
    return status == 0 and "typed"


@attack
def terminal_input_by_wide_number(facts: Facts) -> Any:
    """The same with a request whose upper half the kernel ignores."""
    pid, master = pty.fork()
    if pid == 0:
        try:
            call(by_machine(16, 29), 0, ctypes.c_uint64(0x1_0000_0000 | termios.TIOCSTI), b"x")
            os._exit(0)
        except OSError:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    os.close(master)
    return status == 0 and "typed"


# The harmless control


def control() -> dict[str, Any]:
    """What an ordinary program does must work at every level."""
    with open("own-file", "w") as file:
        file.write("mine")
    os.makedirs("own-folder/below", exist_ok=True)
    os.rename("own-file", "own-folder/below/file")
    os.link("own-folder/below/file", "own-link")
    os.chmod("own-link", 0o600)
    child = os.fork()
    if child == 0:
        signal.pause()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    near, far = socket.socketpair()
    near.sendall(b"hello")
    with tempfile.TemporaryFile() as file:
        file.write(b"mine")
    return {
        "file": read("own-link"),
        "socket": repr(far.recv(9)),
        "program": subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, check=False).returncode,
        "terminal": all(os.isatty(descriptor) for descriptor in pty.openpty()),
        "loopback": own_loopback(),
    }


def own_loopback() -> str:
    """An own server on the loopback interface."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname(), timeout=_PATIENCE),
        ):
            return "works"
    except OSError as error:
        return str(error.strerror)


# The program


def attempt(name: str, facts: Facts) -> dict[str, Any]:
    """One attack in a process of its own: some change it for good."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            signal.alarm(_SECONDS)
            try:
                found = {"got": str(ATTACKS[name](facts) or ""), "error": ""}
            except OSError as error:
                found = {"got": "", "error": f"{type(error).__name__} {errno.errorcode.get(error.errno or 0)}"}
            except Exception as error:  # noqa: BLE001 - an attack that is wrong proves nothing, and must be seen
                found = {"got": "", "error": f"BROKEN {type(error).__name__}: {error}"}
            os.write(writer, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        said = file.read()
    os.waitpid(pid, 0)
    result: dict[str, Any] = json.loads(said) if said else {"got": "", "error": "BROKEN it ended without a word"}
    return result


def main() -> None:
    """Everything, in the order of the names that were given."""
    descriptors = [
        f"{name}: {target}"
        for name in os.listdir("/proc/self/fd")
        if int(name) > 2 and (target := link_of(f"/proc/self/fd/{name}"))
    ]
    facts: Facts = json.loads(sys.argv[1])
    facts["descriptors"] = descriptors
    before = control()
    found = {name: attempt(name, facts) for name in sys.argv[2:]}
    os.unlink("own-link")
    json.dump({"attacks": found, "control": before, "after": control()}, sys.stdout)


def link_of(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:  # the descriptor that listed the folder
        return ""


if __name__ == "__main__":
    main()
