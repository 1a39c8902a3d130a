"""The endpoints of ``/v1``: decode the request, run its turns, encode the answer."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, Protocol

from debug_server.config.gateway import GatewayConfig
from debug_server.errors import DebugServerError
from debug_server.gateway.access import Access
from debug_server.gateway.admission import Admission, AdmittedRequest
from debug_server.gateway.api_errors import ApiError
from debug_server.gateway.chat_answer import ChatAnswer, Events
from debug_server.gateway.chat_request import ChatRequest
from debug_server.gateway.exchange import Exchange
from debug_server.gateway.prompts import chat_turn, estimated_tokens, responses_turn
from debug_server.gateway.responses_answer import ResponsesAnswer
from debug_server.gateway.responses_request import ResponsesRequest
from debug_server.gateway.turn_runner import Deadlines, TurnRunner
from debug_server.gateway.usage import UsageLog
from debug_server.workers import TokenUsage, TurnRequest

Handler = Callable[[Exchange], Awaitable[None]]
_CREATED = int(time.time())


class Answer(Protocol):
    """The answer of a chat or a Responses request."""

    @property
    def usage(self) -> TokenUsage:
        """The tokens so far."""

    async def whole(self, events: Events) -> dict[str, Any]:
        """As one object."""

    def stream(self, events: Events) -> Any:
        """As server-sent events."""

    def failure(self, api_error: ApiError) -> bytes:
        """As the last event."""


class Endpoints:
    """The handlers of the paths."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        access: Access,
        admission: Admission,
        turns: TurnRunner | None,
        usage: UsageLog,
        base: TurnRequest,
    ) -> None:
        """``turns`` is None if the worker is disabled."""
        self._config = config
        self._access = access
        self._admission = admission
        self._turns = turns
        self._usage = usage
        self._base = base

    async def chat(self, exchange: Exchange) -> None:
        """``POST /v1/chat/completions``."""
        async with self._admission.admit() as admitted:
            turns = await self._admit(exchange)
            request = ChatRequest.model_validate(await self._body(exchange))
            most = self._config.answers.max_choices
            if request.n > most:
                raise ApiError("invalid_request_error", f"n: must be 1 to {most}, not {request.n}", param="n")
            await self._check_model(exchange, turns, request.model)
            turn = chat_turn(request, self._base)
            events = self._events(turns, turn, admitted, choices=request.n, stream=self._is_stream(request.stream))
            await self._deliver(exchange, ChatAnswer(request), events, stream=self._is_stream(request.stream))

    async def responses(self, exchange: Exchange) -> None:
        """``POST /v1/responses``."""
        if not self._config.answers.responses:
            raise ApiError("not_found", "there is no path '/v1/responses' here: PROXY_ENABLE_RESPONSES is off")
        async with self._admission.admit() as admitted:
            turns = await self._admit(exchange)
            request = ResponsesRequest.model_validate(await self._body(exchange))
            await self._check_model(exchange, turns, request.model)
            turn, stream = responses_turn(request, self._base), self._is_stream(request.stream)
            answer = ResponsesAnswer(request, sent=exchange.record.counted_event() if stream else None)
            events = self._events(turns, turn, admitted, stream=stream)
            await self._deliver(exchange, answer, events, stream=stream)

    async def _body(self, exchange: Exchange) -> dict[str, Any]:
        return await exchange.body(seconds=self._config.answers.idle_ms / 1000)

    async def _admit(self, exchange: Exchange) -> TurnRunner:
        caller = await self._access.require(exchange.request)
        if self._config.access.maintenance:
            raise ApiError("maintenance_mode", "the gateway is in maintenance: try again later", retry_after=60)
        if self._turns is None:
            raise ApiError("app_server_disabled", "the worker is disabled: PROXY_USE_APP_SERVER is false")
        self._admission.check_rate(caller)
        self._turns.check_ready()
        return self._turns

    async def _check_model(self, exchange: Exchange, turns: TurnRunner, model: str) -> None:
        if model != self._config.codex.model and model not in await turns.models():
            raise _no_model(model)
        exchange.record.model = model

    def _is_stream(self, asked: bool | None) -> bool:
        return self._config.answers.default_stream if asked is None else asked

    def _events(
        self, turns: TurnRunner, turn: TurnRequest, admitted: AdmittedRequest, *, choices: int = 1, stream: bool
    ) -> Events:
        most = self._config.answers.max_prompt_tokens
        if most and (tokens := estimated_tokens(turn)) > most:
            raise ApiError("context_length_exceeded", f"the prompt has about {tokens} tokens (limit {most})")
        deadlines = Deadlines.of(self._config, stream=stream)
        events = turns.events(turn, admitted, choices=choices, deadlines=deadlines)
        return self._counting_stream(events) if stream else events

    async def _counting_stream(self, events: Events) -> Events:
        """Count the stream until its turn ends: a client that has read the end may open the next one at once."""
        with self._admission.streaming():
            async with aclosing(events):
                async for event in events:
                    yield event

    async def _deliver(self, exchange: Exchange, answer: Answer, events: Events, *, stream: bool) -> None:
        try:
            if stream:
                await exchange.stream(answer.stream(events), answer.failure)
            else:
                await exchange.json(await exchange.cancel_if_client_leaves(answer.whole(events)))
        finally:
            record = exchange.record
            record.usage = answer.usage
            if answer.usage.total:
                self._usage.add(req_id=record.request_id, route=record.route, model=record.model, usage=answer.usage)

    async def models(self, exchange: Exchange) -> None:
        """``GET /v1/models``."""
        names = await self._model_names(exchange)
        await exchange.json({"object": "list", "data": [_model(name) for name in names]})

    async def model(self, exchange: Exchange) -> None:
        """``GET /v1/models/{id}``."""
        name = exchange.request.path_params["model"]
        if name not in await self._model_names(exchange):
            if self._turns is not None:
                self._turns.check_ready()  # without a ready worker its models are not known
            raise _no_model(name)
        await exchange.json(_model(name))

    async def _model_names(self, exchange: Exchange) -> list[str]:
        if self._config.access.protect_models or self._config.access.api_key is None:
            await self._access.require(exchange.request)
        names = [self._config.codex.model]
        if self._turns is not None:
            with suppress(DebugServerError):  # the worker has just stopped; the configured model is still listed
                names += [name for name in await self._turns.models() if name not in names]
        return names

    async def usage_totals(self, exchange: Exchange) -> None:
        """``GET /v1/usage``."""
        await self._check_usage(exchange)
        await exchange.json(self._usage.summary(exchange.request.query_params))

    async def usage_entries(self, exchange: Exchange) -> None:
        """``GET /v1/usage/raw``."""
        await self._check_usage(exchange)
        await exchange.json(self._usage.raw(exchange.request.query_params))

    async def _check_usage(self, exchange: Exchange) -> None:
        if not self._config.access.usage_open:
            await self._access.require(exchange.request)

    async def concurrency(self, exchange: Exchange) -> None:
        """``GET /__test/conc``: for tests of clients."""
        admission = self._admission
        await exchange.json({"inside": admission.inside, "running": admission.running, "streams": admission.streams})

    async def head(self, exchange: Exchange) -> None:
        """``HEAD`` of a path that takes POST."""
        await self._access.require(exchange.request)
        await exchange.json({})

    async def unknown(self, exchange: Exchange) -> None:
        """Any other path below ``/v1``."""
        raise ApiError("not_found", f"there is no path {exchange.request.url.path[:200]!r}")


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": "codex"}


def _no_model(name: str) -> ApiError:
    return ApiError("model_not_found", f"the model {name[:200]!r} does not exist: see /v1/models", param="model")
