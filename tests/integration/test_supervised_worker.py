"""The supervised worker behind the gateway: the three acceptance criteria and the nine rows of their validation."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.gateway.gateway_process import FAST, GatewayProcess, fake_program, serving
from tests.running import carrying, eventually

MESSAGES: Any = [{"role": "user", "content": "words=3"}]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One gateway for the tests that break nothing."""
    with serving(tmp_path_factory.mktemp("shared"), MODE="secret-stderr") as gateway:
        yield gateway


def ask(gateway: GatewayProcess, messages: Any = MESSAGES) -> str:
    """One whole answer."""
    answer = gateway.client().chat.completions.create(model="gpt-5.2", messages=messages)
    return str(answer.choices[0].message.content)


def events(gateway: GatewayProcess, name: str) -> list[dict[str, Any]]:
    """The log records of one event."""
    return [record for record in gateway.log if record["event"] == name]


def refused(gateway: GatewayProcess) -> dict[str, Any]:
    """The body of a 503 to a request."""
    with pytest.raises(openai.APIStatusError) as caught:
        ask(gateway)
    assert caught.value.status_code == 503
    body: dict[str, Any] = caught.value.response.json()
    assert ("retry-after" in caught.value.response.headers) == ("retryable" in body["error"])
    return body


class Stream(threading.Thread):
    """A stream that is read beside the test; its second half comes when its gate is there."""

    def __init__(self, gateway: GatewayProcess) -> None:
        super().__init__(daemon=True)
        self._gateway = gateway
        self.gate = gateway.root / "gate"
        self.begun = threading.Event()
        self.text = ""
        self.finish: str | None = None
        self.error: openai.APIError | None = None
        self.start()
        assert self.begun.wait(100)

    def run(self) -> None:
        messages: Any = [{"role": "user", "content": f"words=20 delay=5 gate={self.gate}"}]
        try:
            for chunk in self._gateway.client().chat.completions.create(
                model="gpt-5.2", messages=messages, stream=True
            ):
                self.text += chunk.choices[0].delta.content or ""
                self.finish = chunk.choices[0].finish_reason
                if self.text:
                    self.begun.set()
        except openai.APIError as error:
            self.error = error
            self.begun.set()


# --- the acceptance criteria


def test_ac1_the_worker_boots_with_the_server_and_its_output_becomes_structured_logs(shared: GatewayProcess) -> None:
    """Launch, spawn, ready and each piece of output are log records with stream and length, never with the text."""
    assert ask(shared) == "w0 w1 w2"
    for name in ("worker_launch", "worker_spawned", "worker_ready", "worker_stream", "access_log"):
        eventually(lambda: name in {record["event"] for record in shared.log}, what=name)  # noqa: B023
        first, *_ = events(shared, name)
        assert {"timestamp", "ts", "ts_ms", "level", "component", "event"} <= set(first)
    streams = {"stdout", "stderr"}
    eventually(lambda: {record["stream"] for record in events(shared, "worker_stream")} == streams, what="both streams")
    text = (shared.root / "serve.err").read_text()
    assert "Bearer" not in text
    paths = [*(shared.root / ".artifacts" / "logs").rglob("codex-*.log")]
    redacted = b"Authorization: [redacted]"  # on the disk, too
    eventually(lambda: any(redacted in path.read_bytes() for path in paths), what="the secret's line")
    logs = [path.read_bytes() for path in paths]
    assert not any(b"sk-xxx" in data for data in logs)
    assert "w0" not in text
    access = events(shared, "access_log")[-1]
    assert {"req_id", "route", "model", "latency_ms", "tokens_prompt", "worker_state", "restart_count"} <= set(access)


def test_ac2_restarts_back_off_within_bounds_and_are_counted(tmp_path: Path, nothing_left: None) -> None:
    """A worker that always dies is restarted with growing waits up to the bound, warned about, and then given up."""
    environ = {**FAST, "WORKER_RESTART_MAX": "4", "WORKER_BACKOFF_INITIAL_MS": "20", "WORKER_BACKOFF_MAX_MS": "60"}
    with serving(tmp_path, environ, ready=False, MODE="crash") as gateway:
        eventually(lambda: gateway.get("/livez")[0] == 503, what="a worker that is given up")
        status = gateway.worker()
        assert (status["restarts_total"], status["running"]) == (4, False)
        assert status["health"]["liveness"]["reason"] == "restart_limit_exceeded"
        assert gateway.metrics("codex_worker_restarts_total") == 4
        delays = [record["backoff_ms"] for record in events(gateway, "worker_restart_scheduled")]
        assert len(delays) == 4
        assert max(delays) <= 60 * 1.5
        assert events(gateway, "worker_restart_limit")
        assert refused(gateway)["error"]["code"] == "worker_not_ready"


def test_ac3_shutdown_drains_updates_readiness_and_ends_within_the_grace(tmp_path: Path, nothing_left: None) -> None:
    """After SIGTERM readiness is false, the stream under way is finished, and the server leaves within its grace."""
    grace = 90
    with serving(tmp_path, {"WORKER_SHUTDOWN_GRACE_MS": str(grace * 1000)}) as gateway:
        stream = Stream(gateway)
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        eventually(lambda: gateway.get("/readyz")[0] == 503, what="readiness false")
        assert gateway.get("/readyz")[1]["health"]["readiness"]["reason"].startswith("shutdown")
        stream.gate.touch()
        assert gateway.process.wait(100) == 0
        assert time.monotonic() - began < grace
        stream.join(100)
        assert (stream.text.split()[-1], stream.finish, stream.error) == ("w19", "stop", None)
    eventually(lambda: not carrying(str(tmp_path / "bin")), what="the end of the worker")


# --- the nine rows of the validation


def test_row1_the_supervisor_spawns_codex_app_server_with_its_settings(shared: GatewayProcess) -> None:
    """The child is ``codex app-server`` with model, authentication and sandbox overrides and a scrubbed environment."""
    pid = shared.worker()["pid"]
    argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    assert argv[argv.index("app-server") + 1 : -1] == [
        *("-c", 'model="gpt-5.2"', "-c", 'preferred_auth_method="chatgpt"', "-c", 'sandbox_mode="read-only"')
    ]
    environ = dict(item.split("=", 1) for item in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in item)
    assert environ["CODEX_WORKER_SUPERVISED"] == "true"
    assert environ["CODEX_HOME"] == str(shared.root / "home")
    assert not {"PROXY_API_KEY", "PROXY_METRICS_TOKEN", "CODEX_BIN"} & set(environ)


def test_row2_the_feature_flag_turns_the_worker_off_cleanly(tmp_path: Path, nothing_left: None) -> None:
    """With PROXY_USE_APP_SERVER=false nothing is started; probes say so and requests are refused for good."""
    with serving(tmp_path, {"PROXY_USE_APP_SERVER": "false"}, ready=False) as gateway:
        assert gateway.get("/readyz")[0] == 200
        health = gateway.get("/healthz")[1]
        assert (health["ok"], health["backend_mode"], health["app_server_enabled"]) == (True, "disabled", False)
        assert health["health"]["readiness"]["reason"] == "app_server_disabled"
        error = refused(gateway)["error"]
        assert (error["code"], error["type"], "retryable" in error) == (
            *("app_server_disabled", "backend_unavailable", False),
        )
        assert not carrying(str(tmp_path / "bin"))


def test_row3_requests_are_gated_until_the_worker_is_ready(tmp_path: Path, nothing_left: None) -> None:
    """Before the handshake a request gets a retryable 503 with the worker's status; after it the same request works."""
    ready = tmp_path / "ready"
    with serving(tmp_path, ready=False, WORKER_READY_FILE=str(ready)) as gateway:
        body = refused(gateway)
        assert body["error"]["retryable"] is True
        assert body["worker_status"]["ready"] is False
        reasons = ("worker_launching", "handshake_pending", "worker_not_started")
        assert body["worker_status"]["health"]["readiness"]["reason"] in reasons
        assert gateway.get("/readyz")[0] == 503
        ready.touch()
        gateway.await_ready()
        assert ask(gateway) == "w0 w1 w2"


def test_row4_a_killed_worker_is_replaced(tmp_path: Path, nothing_left: None) -> None:
    """After kill -9 another process answers, and the restart is counted in status, metric and log."""
    with serving(tmp_path) as gateway:
        pid = gateway.kill_worker()
        eventually(lambda: gateway.worker()["restarts_total"] == 1 and gateway.worker()["ready"], what="a successor")
        assert gateway.worker()["pid"] != pid
        assert ask(gateway) == "w0 w1 w2"
        assert gateway.metrics("codex_worker_restarts_total") == 1
        assert [record["signal"] for record in events(gateway, "worker_exit")] == [9]


def test_row5_restart_and_latency_metrics_exit_codes_and_backoff_are_told(tmp_path: Path, nothing_left: None) -> None:
    """An exit with a status is in the status object and the log, with the backoff; latency is in probe and metrics."""
    leave = tmp_path / "leave"
    with serving(tmp_path, WORKER_EXIT_FILE=str(leave), WORKER_EXIT_CODE="7") as gateway:
        leave.touch()
        eventually(lambda: gateway.worker()["restarts_total"] == 1, what="a restart")
        assert gateway.worker()["last_exit"]["code"] == 7
        gateway.await_ready()
        assert gateway.worker()["metrics"]["codex_worker_latency_ms"] > 0
        assert gateway.metrics("codex_worker_latency_ms") > 0
        assert events(gateway, "worker_exit")[0]["code"] == 7
        assert events(gateway, "worker_restart_scheduled")[0]["backoff_ms"] > 0


def test_row6_a_worker_that_never_becomes_ready_is_ended_and_tried_again(tmp_path: Path, nothing_left: None) -> None:
    """No handshake within the startup timeout: the process is ended, the reason told, and the budget runs out."""
    environ = {"WORKER_STARTUP_TIMEOUT_MS": "400", "WORKER_RESTART_MAX": "1"}
    with serving(tmp_path, environ, ready=False, HANDSHAKE_MODE="hang") as gateway:
        eventually(lambda: gateway.get("/livez")[0] == 503, what="a worker that is given up")
        assert gateway.worker()["restarts_total"] == 1
        assert events(gateway, "worker_ready_timeout")
        eventually(lambda: not carrying(str(tmp_path / "bin")), what="the end of the worker")


def test_row7_a_worker_that_ignores_term_and_leaves_children_is_gone_all_the_same(
    tmp_path: Path, nothing_left: None
) -> None:
    """Shutdown ends the whole tree: TERM, the grace, KILL, and nothing of it is left."""
    with serving(tmp_path, {"WORKER_SHUTDOWN_GRACE_MS": "300"}, MODE="leave-children") as gateway:
        assert gateway.stop() == 0
    with serving(tmp_path / "second", {"WORKER_SHUTDOWN_GRACE_MS": "300"}, MODE="ignore-term") as gateway:
        assert gateway.stop() == 0


def test_row8_requests_that_die_with_the_worker_are_retryable_and_recovery_follows(
    tmp_path: Path, nothing_left: None
) -> None:
    """A stream whose worker is killed ends with one retryable error; the next request after recovery succeeds."""
    with serving(tmp_path) as gateway:
        stream = Stream(gateway)
        gateway.kill_worker()
        stream.join(100)
        assert stream.error is not None
        assert isinstance(stream.error.body, dict)
        assert (stream.error.body["code"], stream.error.body["retryable"]) == ("worker_exited", True)
        patient = gateway.client(max_retries=30)
        answer = patient.chat.completions.create(model="gpt-5.2", messages=MESSAGES)
        assert answer.choices[0].message.content == "w0 w1 w2"


def test_row9_sigterm_and_health_of_the_full_server(tmp_path: Path, nothing_left: None) -> None:
    """``debug-server serve`` has the gateway where it is asked for, in one process with one /healthz, and drains it."""
    program = fake_program(tmp_path / "bin")
    environ = {"CODEX_BIN": str(program), "CODEX_HOME": str(tmp_path / "home"), "PROXY_USE_APP_SERVER": "true", **FAST}
    gateway = GatewayProcess(tmp_path, environ, ("serve", "--no-grpc"))
    gateway.start()
    try:
        health = gateway.get("/healthz")[1]
        assert {"message", "ok", "sandbox_mode", "backend_mode", "worker_supervisor", "worker_program"} <= set(health)
        program_told = eventually(lambda: gateway.get("/healthz")[1]["worker_program"].get("version"), what="a version")
        assert program_told == "0.166.0"
        assert gateway.get("/healthz")[1]["worker_program"]["app_server_help"] is True
        assert ask(gateway) == "w0 w1 w2"
        assert json.loads(json.dumps(gateway.get("/readyz")[1]))["checks"]["gateway"] == "ok"
    finally:
        assert gateway.stop() == 0
    without = GatewayProcess(tmp_path / "plain", {}, ("serve", "--no-grpc"))
    without.start(ready=False)
    try:
        assert without.get("/v1/models")[0] == 404
        assert "backend_mode" not in without.get("/healthz")[1]
    finally:
        assert without.stop() == 0
    assert not os.path.exists(tmp_path / "plain" / ".codex-api")
