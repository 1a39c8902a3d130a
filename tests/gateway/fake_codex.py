"""A worker that speaks the protocol of ``codex app-server`` and misbehaves as told; standard library only.

Variables FAKE_CODEX_…: WORKER_READY_DELAY_MS, WORKER_READY_FILE (it is waited for), WORKER_EXIT_FILE (when it is there,
one worker removes it and exits), WORKER_HEARTBEAT_MS, WORKER_AUTOEXIT_MS, WORKER_SHUTDOWN_DELAY_MS,
WORKER_EXIT_CODE, SKIP_READY, HANDSHAKE_MODE (ok, hang, refuse, old), JSONRPC_HANG (a method), UNAUTHORIZED, VERSION,
MODE (see ``_misbehave``), FINISH_REASON (completed, interrupted, failed).

A prompt may hold ``key=value`` words: words=N (the answer is w0 to wN-1), delay=MS between words, first=MS before them,
gate=FILE (the middle word comes when it is there), die=STEP (request, started, delta, item, usage, completed), hang=1,
tool=NAME calls=N, late=1 (the tokens of calls are told when the turn is interrupted, as codex does), approve=1,
error=INFO, big=BYTES, overload=N.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

_LOOK_MS = 20  # between two looks for a file
STEPS = ("request", "started", "delta", "item", "usage", "completed")
Options = dict[str, str]


def knob(name: str, default: str = "") -> str:
    return os.environ.get(f"FAKE_CODEX_{name}", default)


class Fake:
    """One process."""

    def __init__(self) -> None:
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self._turns: dict[str, bool] = {}  # turn -> interrupted
        self._uncounted: set[str] = set()  # turns whose tokens are told when they are interrupted
        self._threads: dict[str, dict[str, Any]] = {}
        self._pending: dict[int, Callable[[Any], None]] = {}
        self._overloads: dict[str, int] = {}
        self._pieces: list[bytes] = []  # of a line that is not complete

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._terminated)
        _misbehave(knob("MODE"))
        if delay := knob("WORKER_AUTOEXIT_MS"):
            self.later(int(delay), self.exit)
        if path := knob("WORKER_EXIT_FILE"):
            self._exit_when(path)
        if beat := knob("WORKER_HEARTBEAT_MS"):
            self._heartbeat(int(beat))
        time.sleep(int(knob("WORKER_READY_DELAY_MS", "0")) / 1000)
        while (path := knob("WORKER_READY_FILE")) and not os.path.exists(path):
            time.sleep(_LOOK_MS / 1000)
        while True:
            self._pass()

    def _pass(self) -> None:
        wait = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        if select.select([0], [], [], wait)[0]:
            data = os.read(0, 1 << 16)
            if not data:
                os._exit(0)
            self._pieces.append(data)
            if b"\n" in data:
                *lines, rest = b"".join(self._pieces).split(b"\n")
                self._pieces = [rest]
                for line in lines:
                    self._take(json.loads(line))
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()

    def later(self, milliseconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + milliseconds / 1000, next(self._numbers), action))

    def _exit_when(self, path: str) -> None:
        if os.path.exists(path):
            os.unlink(path)
            self.exit()
        self.later(_LOOK_MS, lambda: self._exit_when(path))

    def exit(self) -> None:
        os._exit(int(knob("WORKER_EXIT_CODE", "0")))

    def _terminated(self, *_: object) -> None:
        if knob("MODE") == "ignore-term":
            return
        time.sleep(int(knob("WORKER_SHUTDOWN_DELAY_MS", "0")) / 1000)
        self.exit()

    def _heartbeat(self, every: int) -> None:
        write({"event": "heartbeat", "status": "healthy"})
        self.later(every, lambda: self._heartbeat(every))

    def _take(self, message: dict[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        if method is None:
            if (then := self._pending.pop(number, None)) is not None:  # type: ignore[arg-type]
                then(message.get("result"))
            return
        if number is None or knob("JSONRPC_HANG") == method:
            return
        try:
            write({"id": number, "result": self._answer(method, message.get("params") or {})})
        except Refused as refused:
            write({"id": number, "error": {"code": refused.number, "message": str(refused), "data": refused.data}})

    def _answer(self, method: str, params: dict[str, Any]) -> Any:
        if method == "initialize":
            return self._initialize()
        if method in ("thread/loaded/list", "model/list"):
            if knob("HANDSHAKE_MODE") == "old":
                raise Refused(f"unknown variant `{method}`", -32600)
            return {"data": [{"id": "fake-model"}]} if method == "model/list" else {"data": []}
        if method == "thread/start":
            thread = f"thread-{next(self._numbers)}"
            self._threads[thread] = params
            return {"thread": {"id": thread}}
        if method == "turn/start":
            return self._start(params)
        if method == "turn/interrupt":
            self._turns[params["turnId"]] = True
            self.later(0, lambda: self._interrupted(params["threadId"], params["turnId"]))
            return {}
        if method == "thread/unsubscribe":
            self._threads.pop(params["threadId"], None)
        return {}

    def _initialize(self) -> dict[str, Any]:
        mode = knob("HANDSHAKE_MODE", "ok")
        if mode == "hang":
            time.sleep(3600)
        if mode == "refuse":
            raise Refused("not today", -32000)
        if not knob("SKIP_READY"):
            write({"event": "ready"})
        return {"userAgent": f"fake/{knob('VERSION', '0.166.0')} (Linux)", "codexHome": os.environ.get("CODEX_HOME")}

    def _start(self, params: dict[str, Any]) -> dict[str, Any]:
        thread, turn = params["threadId"], f"turn-{next(self._numbers)}"
        text = " ".join(item.get("text", "") for item in params["input"])
        options = dict(word.split("=", 1) for word in text.split() if "=" in word)
        if "overload" in options:
            seen = self._overloads[text] = self._overloads.get(text, 0) + 1
            if seen <= int(options["overload"]):
                raise Refused("Server overloaded; retry later.", -32001)
        die(options, "request")
        self._turns[turn] = False
        if "hang" not in options:
            self.later(float(options.get("first", 0)), lambda: self._speak(thread, turn, text, options))
        return {"turn": {"id": turn, "status": "inProgress", "items": []}}

    def _speak(self, thread: str, turn: str, text: str, options: Options) -> None:
        where = {"threadId": thread, "turnId": turn}
        notify("turn/started", {"threadId": thread, "turn": {"id": turn, "status": "inProgress", "items": []}})
        die(options, "started")
        if knob("UNAUTHORIZED") or "error" in options:
            self._fail(thread, turn, "unauthorized" if knob("UNAUTHORIZED") else options["error"])
        elif "tool" in options:
            self._call_tool(thread, turn, options)
        elif "approve" in options:
            number = next(self._numbers)
            self._pending[number] = lambda result: self._words(where, [f"decision={result['decision']}"], 0, options)
            asked = {**where, "itemId": "c1", "command": "rm -rf /"}
            write({"id": number, "method": "item/commandExecution/requestApproval", "params": asked})
        else:
            words = [f"w{number}" for number in range(int(options["words"]))] if "words" in options else ["echo:", text]
            if "big" in options:
                words = ["x" * int(options["big"])]
            self._words(where, words, 0, options)

    def _words(self, where: dict[str, str], words: list[str], at: int, options: Options) -> None:
        if self._turns.get(where["turnId"]):
            return
        if at == len(words):
            self._close(where, words, options)
            return
        if at == len(words) // 2:
            die(options, "delta")
            if "gate" in options and not os.path.exists(options["gate"]):
                self.later(_LOOK_MS, lambda: self._words(where, words, at, options))
                return
        notify("item/agentMessage/delta", {**where, "itemId": "m1", "delta": words[at] if at == 0 else " " + words[at]})
        if delay := float(options.get("delay", 0)):
            self.later(delay, lambda: self._words(where, words, at + 1, options))
        else:
            self._words(where, words, at + 1, options)

    def _close(self, where: dict[str, str], words: list[str], options: Options) -> None:
        notify("item/completed", {**where, "item": {"type": "agentMessage", "id": "m1", "text": " ".join(words)}})
        die(options, "item")
        self._use(where, len(words))
        die(options, "usage")
        self._complete(where["threadId"], where["turnId"], knob("FINISH_REASON", "completed"))
        die(options, "completed")

    def _use(self, where: dict[str, str], words: int) -> None:
        total = {"inputTokens": 7, "cachedInputTokens": 2, "outputTokens": words, "reasoningOutputTokens": 0}
        notify("thread/tokenUsage/updated", {**where, "tokenUsage": {"total": total, "last": total}})

    def _call_tool(self, thread: str, turn: str, options: Options) -> None:
        where, requests = {"threadId": thread, "turnId": turn}, []
        for number in range(int(options.get("calls", 1))):
            asked = {**where, "callId": f"call_{number}", "tool": options["tool"], "arguments": {"n": number}}
            request = next(self._numbers)
            self._pending[request] = lambda result: None
            requests.append({"id": request, "method": "item/tool/call", "params": asked})
        write(*requests)  # at once: a turn is over when no further call comes for a while
        if "late" in options:
            self._uncounted.add(turn)
        else:
            self._use(where, 3)

    def _interrupted(self, thread: str, turn: str) -> None:
        if turn in self._uncounted:
            self._uncounted.remove(turn)
            self._use({"threadId": thread, "turnId": turn}, 3)
        self._complete(thread, turn, "interrupted")

    def _fail(self, thread: str, turn: str, info: str) -> None:
        told = {"message": f"the fake failed: {info}", "codexErrorInfo": info, "additionalDetails": None}
        if info == "unauthorized":
            told["data"] = {"auth_url": "https://login.example/x", "login_id": "login-1"}  # type: ignore[assignment]
        notify("error", {"threadId": thread, "turnId": turn, "willRetry": False, "error": told})
        ended = {"id": turn, "status": "failed", "items": [], "error": told}
        notify("turn/completed", {"threadId": thread, "turn": ended})

    def _complete(self, thread: str, turn: str, status: str) -> None:
        notify("turn/completed", {"threadId": thread, "turn": {"id": turn, "status": status, "items": []}})


class Refused(Exception):
    """Answers with an error."""

    def __init__(self, message: str, number: int, data: Any = None) -> None:
        super().__init__(message)
        self.number = number
        self.data = data


def die(options: Options, step: str) -> None:
    """As a crash would, if the prompt says so."""
    if options.get("die") == step:
        os.kill(os.getpid(), signal.SIGKILL)


def _misbehave(mode: str) -> None:
    if mode == "crash":
        os._exit(int(knob("WORKER_EXIT_CODE", "3")))
    if mode == "flood":
        os.write(1, b"".join(b'{"method":"noise","params":{"n":%d}}\n' % number for number in range(20_000)))
    if mode == "huge-line":
        for _ in range(50):
            write_all(b"x" * (1 << 20))
        write_all(b"\n")
    if mode == "half-lines":
        write_all(b'{"method": "half\n{"also": \nnot json at all\n[1,2,3]\n\xff\xfe\n')
    if mode == "secret-stderr":
        os.write(2, b"Authorization: Bearer sk-" + b"x" * 30 + b"\n")
    if mode == "leave-children":
        subprocess.Popen(["sleep", "3600"], start_new_session=True)


def notify(method: str, params: dict[str, Any]) -> None:
    write({"method": method, "params": params})


def write(*messages: dict[str, Any]) -> None:
    write_all(b"".join(json.dumps(message).encode() + b"\n" for message in messages))


def write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    if "--version" in sys.argv:
        sys.stdout.write(f"codex-cli {knob('VERSION', '0.166.0')}\n")
    elif "--help" in sys.argv:
        sys.stdout.write("Usage: codex app-server\n")
    else:
        Fake().run()
