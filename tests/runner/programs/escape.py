"""Programs that do not want to end. Usage: escape.py KIND MARK; prints ``ready`` when the escape is prepared.

MARK stands on the command line of every process, so that a test can find those that wiped their environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

SLEEPER = "import time; time.sleep(1000)"


def sleep_for_ever() -> None:
    """Not ``pause``: a handled signal would end it."""
    while True:
        time.sleep(1000)


def fork_sleeper(*, session: bool = False) -> None:
    """A child that sleeps, in its own session if asked."""
    if os.fork() == 0:
        if session:
            os.setsid()
        sleep_for_ever()


def ignore_everything() -> None:
    """What can be ignored."""
    for number in set(range(1, 65)) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, 32, 33}:
        signal.signal(number, signal.SIG_IGN)


def setsid() -> None:
    """A child in a session of its own."""
    fork_sleeper(session=True)


def double_fork() -> None:
    """A daemon: its parent is gone, its files are closed."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 1024)
            sleep_for_ever()
        os._exit(0)
    os.wait()


def nohup() -> None:
    """A child of nohup."""
    subprocess.Popen(
        ["nohup", sys.executable, "-I", "-S", "-c", SLEEPER, sys.argv[2]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def term_ignored() -> None:
    """A leader and a child that hear nothing."""
    ignore_everything()
    fork_sleeper()


def stopped() -> None:
    """A stopped child; the leader stops itself at the end of ``main``."""
    child = os.fork()
    if child == 0:
        sleep_for_ever()
    os.kill(child, signal.SIGSTOP)


def fork_storm() -> None:
    """Every process forks as long as it is let, up to a bound of our own for where nothing bounds it."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    ignore_everything()
    for _ in range(6):
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)
    sleep_for_ever()


def pipe_holder() -> None:
    """A grandchild in another session that holds our stdout and stderr."""
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            ignore_everything()
            sleep_for_ever()
        os._exit(0)
    os.wait()


def hydra() -> None:
    """Never the same process for longer than a moment."""
    if os.fork() == 0:
        os.setsid()
        ignore_everything()
        while True:
            if os.fork() != 0:
                os._exit(0)
            time.sleep(0.0005)


def wiped() -> None:
    """A daemon with no environment to be known by."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", SLEEPER, sys.argv[2]], {})
        os._exit(0)
    os.wait()


KINDS = {
    kind.__name__: kind
    for kind in (setsid, double_fork, nohup, term_ignored, stopped, fork_storm, pipe_holder, hydra, wiped)
}


def main() -> None:
    """Escape, report, stay."""
    KINDS[sys.argv[1]]()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if sys.argv[1] == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if "--leave" in sys.argv:
        os._exit(0)
    sleep_for_ever()


if __name__ == "__main__":
    main()
