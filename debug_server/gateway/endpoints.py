"""The endpoints of ``/v1``: decode, have it answered, encode."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, Protocol

from debug_server.config.gateway import GatewayConfig
from debug_server.errors import DebugServerError
from debug_server.gateway.access import Access
from debug_server.gateway.admission import Admission, Place
from debug_server.gateway.answering import Answering, Patience
from debug_server.gateway.chat import ChatAnswer, Events
from debug_server.gateway.chat_request import ChatRequest
from debug_server.gateway.exchange import Exchange
from debug_server.gateway.prompts import chat_turn, estimated_tokens, responses_turn
from debug_server.gateway.refusals import Refusal
from debug_server.gateway.responses import ResponsesAnswer
from debug_server.gateway.responses_request import ResponsesRequest
from debug_server.gateway.usage import UsageLog
from debug_server.workers.codex_turn import TurnRequest
from debug_server.workers.turn_events import TokenUsage

Handler = Callable[[Exchange], Awaitable[None]]
_CREATED = int(time.time())


class Answer(Protocol):
    """Either API's way to tell what a turn says."""

    @property
    def usage(self) -> TokenUsage:
        """So far."""

    async def whole(self, events: Events) -> dict[str, Any]:
        """As one object."""

    def stream(self, events: Events) -> Any:
        """As server-sent events."""

    def failure(self, refusal: Refusal) -> bytes:
        """As the last event."""


class Endpoints:
    """What each path does."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        access: Access,
        admission: Admission,
        answering: Answering | None,
        usage: UsageLog,
        base: TurnRequest,
    ) -> None:
        """``answering`` is None where the worker is turned off."""
        self._config = config
        self._access = access
        self._admission = admission
        self._answering = answering
        self._usage = usage
        self._base = base

    async def chat(self, exchange: Exchange) -> None:
        """``POST /v1/chat/completions``."""
        async with self._admission.arrived() as place:
            answering = await self._admitted(exchange)
            request = ChatRequest.model_validate(await self._body(exchange))
            most = self._config.answers.max_choices
            if request.n > most:
                raise Refusal("invalid_request_error", f"n: must be 1 to {most}, not {request.n}", param="n")
            await self._check_model(exchange, answering, request.model)
            turn = chat_turn(request, self._base)
            events = self._events(answering, turn, place, choices=request.n, stream=self._streams(request.stream))
            await self._deliver(exchange, ChatAnswer(request), events, stream=self._streams(request.stream))

    async def responses(self, exchange: Exchange) -> None:
        """``POST /v1/responses``."""
        if not self._config.answers.responses:
            raise Refusal("not_found", "there is no path '/v1/responses' here: PROXY_ENABLE_RESPONSES is off")
        async with self._admission.arrived() as place:
            answering = await self._admitted(exchange)
            request = ResponsesRequest.model_validate(await self._body(exchange))
            await self._check_model(exchange, answering, request.model)
            turn, stream = responses_turn(request, self._base), self._streams(request.stream)
            answer = ResponsesAnswer(request, sent=exchange.observed.counted_event() if stream else None)
            events = self._events(answering, turn, place, stream=stream)
            await self._deliver(exchange, answer, events, stream=stream)

    async def _body(self, exchange: Exchange) -> dict[str, Any]:
        return await exchange.body(patience=self._config.answers.idle_ms / 1000)

    async def _admitted(self, exchange: Exchange) -> Answering:
        caller = await self._access.require(exchange.request)
        if self._config.access.maintenance:
            raise Refusal("maintenance_mode", "the gateway is closed for maintenance: try again later", retry_after=60)
        if self._answering is None:
            raise Refusal("app_server_disabled", "the worker is turned off: PROXY_USE_APP_SERVER is false")
        self._admission.check_rate(caller)
        self._answering.check_ready()
        return self._answering

    async def _check_model(self, exchange: Exchange, answering: Answering, model: str) -> None:
        if model != self._config.codex.model and model not in await answering.models():
            raise _no_model(model)
        exchange.observed.model = model

    def _streams(self, asked: bool | None) -> bool:
        return self._config.answers.default_stream if asked is None else asked

    def _events(
        self, answering: Answering, turn: TurnRequest, place: Place, *, choices: int = 1, stream: bool
    ) -> Events:
        most = self._config.answers.max_prompt_tokens
        if most and (tokens := estimated_tokens(turn)) > most:
            raise Refusal("context_length_exceeded", f"the prompt has about {tokens} tokens: at most {most} are taken")
        patience = Patience.of(self._config, stream=stream)
        events = answering.events(turn, place, choices=choices, patience=patience)
        return self._counted(events) if stream else events

    async def _counted(self, events: Events) -> Events:
        """A stream counts as long as its turn: whoever has read its end may ask for the next one at once."""
        with self._admission.streaming():
            async with aclosing(events):
                async for event in events:
                    yield event

    async def _deliver(self, exchange: Exchange, answer: Answer, events: Events, *, stream: bool) -> None:
        try:
            if stream:
                await exchange.stream(answer.stream(events), answer.failure)
            else:
                await exchange.json(await exchange.unless_gone(answer.whole(events)))
        finally:
            observed = exchange.observed
            observed.usage = answer.usage
            if answer.usage.total:
                self._usage.add(
                    req_id=observed.request_id, route=observed.route, model=observed.model, usage=answer.usage
                )

    async def models(self, exchange: Exchange) -> None:
        """``GET /v1/models``."""
        names = await self._model_names(exchange)
        await exchange.json({"object": "list", "data": [_model(name) for name in names]})

    async def model(self, exchange: Exchange) -> None:
        """``GET /v1/models/{id}``."""
        name = exchange.request.path_params["model"]
        if name not in await self._model_names(exchange):
            if self._answering is not None:
                self._answering.check_ready()  # one that is away cannot say which it knows
            raise _no_model(name)
        await exchange.json(_model(name))

    async def _model_names(self, exchange: Exchange) -> list[str]:
        if self._config.access.protect_models or self._config.access.api_key is None:
            await self._access.require(exchange.request)
        names = [self._config.codex.model]
        if self._answering is not None:
            with suppress(DebugServerError):  # the worker went away this moment; what is configured is true anyway
                names += [name for name in await self._answering.models() if name not in names]
        return names

    async def used(self, exchange: Exchange) -> None:
        """``GET /v1/usage``."""
        await self._check_usage(exchange)
        await exchange.json(self._usage.summary(exchange.request.query_params))

    async def used_raw(self, exchange: Exchange) -> None:
        """``GET /v1/usage/raw``."""
        await self._check_usage(exchange)
        await exchange.json(self._usage.raw(exchange.request.query_params))

    async def _check_usage(self, exchange: Exchange) -> None:
        if not self._config.access.usage_open:
            await self._access.require(exchange.request)

    async def concurrency(self, exchange: Exchange) -> None:
        """``GET /__test/conc``: for those who test against a gateway."""
        inside = self._admission
        await exchange.json({"inside": inside.inside, "running": inside.running, "streams": inside.streams})

    async def head(self, exchange: Exchange) -> None:
        """``HEAD`` of a path that takes POST."""
        await self._access.require(exchange.request)
        await exchange.json({})

    async def unknown(self, exchange: Exchange) -> None:
        """Any other path below ``/v1``."""
        raise Refusal("not_found", f"there is no path {exchange.request.url.path[:200]!r}")


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": "codex"}


def _no_model(name: str) -> Refusal:
    return Refusal("model_not_found", f"the model {name[:200]!r} does not exist: see /v1/models", param="model")
