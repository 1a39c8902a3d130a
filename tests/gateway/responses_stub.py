"""A model's provider for tests: answers ``POST /v1/responses`` with server-sent events, as the prompt says.

``SAY a b c`` streams the words; ``HELD a b c`` keeps all but the first until ``gate`` is set; ``SLOW n`` streams n
words, one each 50 ms; ``RUN command`` asks to run a command outside the sandbox; ``CALL name`` calls a function;
``STATUS n`` answers with that status.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 14,
}


class ResponsesStub:
    """The provider, and what it was asked."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.broken = 0  # answers whose reader went away
        self.gate = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def configure(self, home: Path) -> None:
        """Write the configuration that makes a codex use this provider."""
        home.mkdir(parents=True, exist_ok=True)
        port = self._server.server_address[1]
        (home / "config.toml").write_text(
            'model = "gpt-5.2"\nmodel_provider = "stub"\n[model_providers.stub]\nname = "stub"\n'
            f'base_url = "http://127.0.0.1:{port}/v1"\nwire_api = "responses"\nrequires_openai_auth = false\n'
            "request_max_retries = 0\nstream_max_retries = 0\nsupports_websockets = false\n"
        )

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                stub.requests.append(body)
                try:
                    _answer(self, body, stub.gate)
                except OSError:
                    stub.broken += 1

        return Handler


def _prompt(body: dict[str, Any]) -> tuple[str, list[str]]:
    """The last thing the user said, as a verb and its words; an answer to a call is ``SAY done``."""
    last = body["input"][-1]
    if last["type"].endswith("_output"):
        return "SAY", ["done", str(last.get("output"))[:200]]
    text = "".join(part.get("text", "") for part in last.get("content", ()))
    verb, *words = text.split()
    return verb, words


def _answer(handler: BaseHTTPRequestHandler, body: dict[str, Any], gate: threading.Event) -> None:
    verb, words = _prompt(body)
    if verb == "STATUS":
        handler.send_response(int(words[0]))
        handler.send_header("content-length", "0")
        handler.end_headers()
        return
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.send_header("connection", "close")
    handler.end_headers()
    _event(handler, "response.created", response={"id": "r1"})
    if verb == "RUN":
        asked = {"cmd": " ".join(words), "sandbox_permissions": "require_escalated", "justification": "a test"}
        _call(handler, "exec_command", asked)
    elif verb == "CALL":
        _call(handler, words[0], {"city": "Rome"})
    elif verb == "SLOW":
        _say(handler, [f"w{number}" for number in range(int(words[0]))], lambda: time.sleep(0.05))
    elif verb == "HELD":
        _say(handler, words, lambda: gate.wait(100))
    else:
        _say(handler, words, lambda: None)
    _event(handler, "response.completed", response={"id": "r1", "usage": _USAGE})


def _event(handler: BaseHTTPRequestHandler, kind: str, **fields: Any) -> None:
    handler.wfile.write(f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode())
    handler.wfile.flush()


def _call(handler: BaseHTTPRequestHandler, name: str, arguments: dict[str, Any]) -> None:
    item = {"type": "function_call", "id": "fc1", "call_id": "c1", "name": name, "arguments": json.dumps(arguments)}
    _event(handler, "response.output_item.done", output_index=0, item=item)


def _say(handler: BaseHTTPRequestHandler, words: list[str], pause: Callable[[], object]) -> None:
    item: dict[str, Any] = {"type": "message", "id": "m1", "role": "assistant", "content": []}
    _event(handler, "response.output_item.added", output_index=0, item=item)
    for number, word in enumerate(words):
        delta = word if number == 0 else f" {word}"
        _event(handler, "response.output_text.delta", item_id="m1", output_index=0, content_index=0, delta=delta)
        pause()
    content = [{"type": "output_text", "text": " ".join(words)}]
    _event(handler, "response.output_item.done", output_index=0, item={**item, "content": content})


@contextlib.contextmanager
def provider() -> Iterator[ResponsesStub]:
    """A stub for the block."""
    stub = ResponsesStub()
    try:
        yield stub
    finally:
        stub.close()
