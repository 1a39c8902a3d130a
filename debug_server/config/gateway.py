"""The settings of the OpenAI-compatible gateway and of the codex worker behind it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.config.declare import Derived, section, setting
from debug_server.config.kinds import FLAG, PATH, TEXT, Kind, choice, whole


def _of(variable: str, description: str, kind: Kind, default: Any) -> Any:
    return setting(description, kind, default=default, variable=variable)


def _flag(variable: str, description: str, *, default: bool) -> Any:
    return _of(variable, description, FLAG, default)


def _milliseconds(variable: str, description: str, default: int) -> Any:
    return _of(variable, description + ", in milliseconds.", whole(minimum=1), default)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexConfig:
    """[codex]: the codex worker."""

    enabled: bool = _flag("PROXY_USE_APP_SERVER", "Start the worker and serve `/v1` through it.", default=True)
    bin: str = _of("CODEX_BIN", "The codex program.", TEXT, "codex")
    home: Path = _of(
        "CODEX_HOME",
        "The home folder of codex; not below a temporary directory.",
        PATH,
        Derived(text="`.codex-api` beside `config/`, else in the data folder", of=lambda _: Path(".codex-api")),
    )
    workdir: Path | None = _of(
        "PROXY_CODEX_WORKDIR", "The working directory of codex; default: the home folder of codex.", PATH, None
    )
    model: str = _of("CODEX_MODEL", "The default model.", TEXT, "gpt-5.2")
    model_provider: str | None = _of("CODEX_MODEL_PROVIDER", "A model provider of the codex configuration.", TEXT, None)
    sandbox: str = _of(
        "PROXY_SANDBOX_MODE",
        "The sandbox mode of codex.",
        choice("read-only", "workspace-write", "danger-full-access"),
        "read-only",
    )
    approval: str = _of(
        "PROXY_APPROVAL_POLICY",
        "When codex asks for approval; the gateway declines every request.",
        choice("untrusted", "on-request", "never"),
        "never",
    )
    max_concurrency: int = _of("WORKER_MAX_CONCURRENCY", "Maximum number of concurrent turns.", whole(minimum=1), 4)
    request_timeout_ms: int = _milliseconds("WORKER_REQUEST_TIMEOUT_MS", "Timeout of one call to codex", 120_000)
    handshake_timeout_ms: int = _milliseconds("WORKER_HANDSHAKE_TIMEOUT_MS", "Timeout of the codex handshake", 15_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig:
    """[access]: addresses, authentication and rate limits."""

    host: str = _of("PROXY_HOST", "The host on which `gateway serve` listens.", TEXT, "127.0.0.1")
    port: int = _of("PORT", "The port of `gateway serve`; 0 chooses a free one.", whole(minimum=0), 11435)
    environment: str = _of(
        "PROXY_ENV",
        "The deployment environment; staging and prod refuse insecure settings.",
        choice("dev", "staging", "prod"),
        "dev",
    )
    api_key: str | None = _of(
        "PROXY_API_KEY", "The bearer token of clients; without one only the server's own user is served.", TEXT, None
    )
    protect_models: bool = _flag("PROXY_PROTECT_MODELS", "Require the key on `/v1/models` too.", default=False)
    usage_open: bool = _flag("PROXY_USAGE_ALLOW_UNAUTH", "Show `/v1/usage` without a key.", default=False)
    maintenance: bool = _flag("PROXY_MAINTENANCE_MODE", "Refuse all work, with 503.", default=False)
    cors: bool = _flag("PROXY_ENABLE_CORS", "Answer CORS preflight requests.", default=True)
    rate_limit: bool = _flag("PROXY_RATE_LIMIT_ENABLED", "Limit the request rate of each caller.", default=False)
    rate_window_ms: int = _milliseconds("PROXY_RATE_LIMIT_WINDOW_MS", "The window of the rate limit", 60_000)
    rate_max: int = _of("PROXY_RATE_LIMIT_MAX", "Maximum number of requests in a window.", whole(minimum=1), 60)
    test_endpoints: bool = _flag("PROXY_TEST_ENDPOINTS", "Serve `/__test/`.", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersConfig:
    """[answers]: format, timeouts and limits of responses."""

    timeout_ms: int = _milliseconds("PROXY_TIMEOUT_MS", "How long one request may take", 300_000)
    idle_ms: int = _milliseconds("PROXY_IDLE_TIMEOUT_MS", "Idle timeout of a turn and of a request body", 15_000)
    stream_idle_ms: int = _milliseconds("PROXY_STREAM_IDLE_TIMEOUT_MS", "Idle timeout of a streaming turn", 300_000)
    max_streams: int = _of("PROXY_SSE_MAX_CONCURRENCY", "Maximum number of concurrent streams.", whole(minimum=1), 4)
    keepalive_ms: int = _milliseconds(
        "PROXY_SSE_KEEPALIVE_MS", "Time without output after which a stream sends a keep-alive comment", 15_000
    )
    max_choices: int = _of("PROXY_MAX_CHAT_CHOICES", "The largest `n` of a request.", whole(minimum=1), 5)
    max_prompt_tokens: int = _of(
        "PROXY_MAX_PROMPT_TOKENS", "Maximum estimated tokens of a prompt; 0: no limit.", whole(minimum=0), 0
    )
    default_stream: bool = _flag("PROXY_DEFAULT_STREAM", "Stream unless a request says otherwise.", default=False)
    responses: bool = _flag("PROXY_ENABLE_RESPONSES", "Serve `/v1/responses`.", default=True)
    kill_on_disconnect: bool = _flag(
        "PROXY_KILL_ON_DISCONNECT",
        "Replace a worker that does not confirm the interruption of a turn after its client disconnected.",
        default=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationConfig:
    """[observation]: metrics, traces and logs for operators."""

    metrics: bool = _flag("PROXY_ENABLE_METRICS", "Serve `/metrics`.", default=True)
    metrics_open: bool = _flag("PROXY_METRICS_ALLOW_UNAUTH", "Serve `/metrics` without authentication.", default=False)
    metrics_loopback: bool = _flag(
        "PROXY_METRICS_ALLOW_LOOPBACK", "Serve `/metrics` to the server's own user without a token.", default=True
    )
    metrics_token: str | None = _of("PROXY_METRICS_TOKEN", "A bearer token that may read only metrics.", TEXT, None)
    otel: bool = _flag(
        "PROXY_ENABLE_OTEL", "Send traces; only the variable has an effect, the key in a file has none.", default=False
    )
    otel_url: str | None = _of("PROXY_OTEL_EXPORTER_URL", "The URL of the OTLP exporter.", TEXT, None)
    token_log: Path | None = _of("TOKEN_LOG_PATH", "A JSON lines file of each request's token counts.", PATH, None)
    protocol_log: Path | None = _of(
        "PROTO_LOG_PATH", "A file for the method, id and size of each message to and from the worker.", PATH, None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Everything in ``gateway.toml``."""

    codex: CodexConfig = section(CodexConfig)
    access: AccessConfig = section(AccessConfig)
    answers: AnswersConfig = section(AnswersConfig)
    observation: ObservationConfig = section(ObservationConfig)
