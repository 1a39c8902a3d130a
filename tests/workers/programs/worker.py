"""A small long-lived program that says that it is ready in any of the ways there are, and misbehaves on request.

    worker.py KIND [--after FILE] [--delay S] [--exit-after S] [--status N] [--deaf] [--children N]
              [--chatter BYTES] [--hang-when FILE] [--eat BYTES] [--spin]

KIND is stdout, json, notify, fd, http:PORT, exec:FILE or mute. Lines on stdin are answered with the same line.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


def notify(text: str) -> None:
    """As systemd's services do."""
    name = os.environ["NOTIFY_SOCKET"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(text.encode(), "\0" + name[1:] if name.startswith("@") else name)


def serve(port: int) -> None:
    """Answer 204 to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(204 if not HANGING.is_set() else 500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    threading.Thread(target=HTTPServer(("127.0.0.1", port), Handler).serve_forever, daemon=True).start()


HANGING = threading.Event()


def say_ready(kind: str) -> None:
    """In the way of the kind."""
    name, _, argument = kind.partition(":")
    if name == "stdout":
        os.write(1, b"warming up\nnow serv")
        os.write(1, b"ing requests\n")
    elif name == "json":
        os.write(1, b'{"event": "starting"}\n{"ready": true}\n')
    elif name == "notify":
        notify("STATUS=all well\nREADY=1")
        if "WATCHDOG_USEC" in os.environ:
            threading.Thread(target=beat, daemon=True).start()
    elif name == "fd":
        os.write(3, b"\n")
    elif name == "http":
        serve(int(argument))
    elif name == "exec":
        Path(argument).write_text("here")


def hang(kind: str, told: Path) -> None:
    """Answer nobody once a file is there, which is removed: the next worker shall answer."""
    while not told.exists():
        time.sleep(0.01)
    told.unlink()
    HANGING.set()
    if kind.startswith("exec:"):
        Path(kind.removeprefix("exec:")).unlink()


def beat() -> None:
    """Send WATCHDOG=1 until told to hang."""
    while not HANGING.is_set():
        notify("WATCHDOG=1")
        time.sleep(int(os.environ["WATCHDOG_USEC"]) / 4e6)


def main() -> None:
    """Live."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("--after", type=Path)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--exit-after", type=float)
    parser.add_argument("--hang-when", type=Path)
    parser.add_argument("--status", type=int, default=0)
    parser.add_argument("--deaf", action="store_true")
    parser.add_argument("--children", type=int, default=0)
    parser.add_argument("--chatter", type=int, default=0)
    parser.add_argument("--eat", type=int, default=0)
    parser.add_argument("--spin", action="store_true")
    asked = parser.parse_args()
    if asked.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in range(asked.children):
        if os.fork() == 0:
            os.setsid()
            signal.pause()
    if asked.exit_after is not None:
        threading.Timer(asked.exit_after, lambda: os._exit(asked.status)).start()
    while asked.after is not None and not asked.after.exists():
        time.sleep(0.01)
    time.sleep(asked.delay)
    say_ready(asked.kind)
    if asked.hang_when is not None:
        threading.Thread(target=hang, args=(asked.kind, asked.hang_when), daemon=True).start()
    for _ in range(asked.chatter // 4096):
        os.write(2, b"x" * 4096)
    eaten = b"x" * asked.eat
    while asked.spin:
        pass
    for line in sys.stdin.buffer:
        if not HANGING.is_set():
            os.write(1, line)
    del eaten
    signal.pause()


main()
