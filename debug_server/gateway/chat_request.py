"""The body of ``POST /v1/chat/completions``: the fields that the gateway uses; others are ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

Effort = Literal["minimal", "low", "medium", "high", "xhigh"]


def _unless_null(default: object) -> BeforeValidator:
    """Clients send null for the default."""
    return BeforeValidator(lambda value: default if value is None else value)


def unsupported(reason: str) -> AfterValidator:
    """Refuse a value for a field that is not supported; null, false and empty values are accepted."""

    def check(value: Any) -> Any:
        if value:
            raise ValueError(f"must be left out ({reason})")
        return value

    return AfterValidator(check)


def _text_only(value: Any) -> Any:
    if value not in (None, [], ["text"]):
        raise ValueError('must be left out or ["text"] (answers are text)')
    return value


def chosen_function(choice: object) -> str | None:
    """The function that ``tool_choice`` names, in either API's form."""
    if not isinstance(choice, dict):
        return None
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else choice.get("name")
    return name if isinstance(name, str) else None


def check_choice(choice: Any, offered: list[str]) -> None:
    """ValueError for a choice that none of the offered functions fits."""
    if choice == "required" and not offered:
        raise ValueError("needs tools to choose from")
    if isinstance(choice, dict) and (name := chosen_function(choice)) not in offered:
        known = ", ".join(offered) or "there are none"
        raise ValueError(f"must name one of the functions in tools ({known}), not {name!r}")


class _RequestModel(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class FunctionCall(_RequestModel):
    """A function call of the model."""

    name: str
    arguments: str = ""


class ToolCallMessage(_RequestModel):
    """One entry of an assistant's ``tool_calls``."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class ImageUrl(_RequestModel):
    """The address of an image."""

    url: str


class ContentPart(_RequestModel):
    """A piece of a message."""

    type: Literal["text", "image_url", "input_text", "output_text", "refusal"]
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | str | None = None

    @property
    def plain(self) -> str:
        """Its text."""
        return self.text or self.refusal or ""


class ChatMessage(_RequestModel):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCallMessage] | None = None
    tool_call_id: str | None = None
    function_call: FunctionCall | None = None

    @model_validator(mode="after")
    def _check_complete(self) -> ChatMessage:
        if self.role == "tool" and not self.tool_call_id:
            raise ValueError("a message with the role tool needs its tool_call_id")
        if self.role == "function" and not self.name:
            raise ValueError("a message with the role function needs its name")
        if self.role in ("system", "developer", "user") and self.content is None:
            raise ValueError(f"a message with the role {self.role} needs content")
        return self

    @property
    def text(self) -> str:
        """Its whole text."""
        if isinstance(self.content, str) or self.content is None:
            return self.content or ""
        return "".join(part.plain for part in self.content)

    @property
    def has_content(self) -> bool:
        """Whether it has content to answer, besides instructions."""
        if self.role in ("system", "developer"):
            return False
        called = self.tool_calls or self.function_call or self.role in ("tool", "function")
        return bool(self.text or self.images or called)

    @property
    def images(self) -> list[str]:
        """The addresses of its images."""
        parts = self.content if isinstance(self.content, list) else []
        found = [part.image_url for part in parts if part.image_url is not None]
        return [item if isinstance(item, str) else item.url for item in found]


class FunctionSpec(_RequestModel):
    """A function that the client offers."""

    name: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")
    description: Annotated[str, _unless_null("")] = ""
    parameters: dict[str, Any] | None = None


class ToolSpec(_RequestModel):
    """One of ``tools``."""

    type: Literal["function"]
    function: FunctionSpec


class StreamOptions(_RequestModel):
    """``stream_options``."""

    include_usage: Annotated[bool, _unless_null(False)] = False


class JsonSchema(_RequestModel):
    """The schema of an answer."""

    name: Annotated[str, _unless_null("answer")] = "answer"
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")


class ResponseFormat(_RequestModel):
    """``response_format``."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _check_complete(self) -> ResponseFormat:
        if self.type == "json_schema" and (self.json_schema is None or self.json_schema.schema_ is None):
            raise ValueError("json_schema needs a schema")
        return self


class Reasoning(_RequestModel):
    """``reasoning``."""

    effort: Effort | None = None


class ChatRequest(_RequestModel):
    """The body."""

    model: str = Field(min_length=1)
    messages: list[ChatMessage] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1), _unless_null(1)] = 1
    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False, strict=False)
    top_p: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False, strict=False)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    tools: list[ToolSpec] | None = None
    functions: list[FunctionSpec] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    reasoning: Reasoning | None = None
    reasoning_effort: Effort | None = None
    stop: Annotated[Any, unsupported("the worker has no stop sequences: cut the answer in the client")] = None
    logprobs: Annotated[Any, unsupported("the worker gives no probabilities")] = None
    top_logprobs: Annotated[Any, unsupported("the worker gives no probabilities")] = None
    modalities: Annotated[Any, AfterValidator(_text_only)] = None
    audio: Annotated[Any, unsupported("answers are text")] = None

    @field_validator("messages")
    @classmethod
    def _check_content(cls, messages: list[ChatMessage]) -> list[ChatMessage]:
        if not any(message.has_content for message in messages):
            raise ValueError("must contain a message with content, besides instructions")
        return messages

    @field_validator("tool_choice")
    @classmethod
    def _check_tool_choice(cls, choice: Any, info: ValidationInfo) -> Any:
        if {"tools", "functions"} <= set(info.data):  # otherwise tools or functions are invalid
            specs = [tool.function for tool in info.data["tools"] or ()] + list(info.data["functions"] or ())
            check_choice(choice, [spec.name for spec in specs])
        return choice

    @property
    def offered(self) -> list[FunctionSpec]:
        """The functions that the model may call."""
        return [tool.function for tool in self.tools or ()] + list(self.functions or ())

    @property
    def effort(self) -> Effort | None:
        """The effort, from either of its fields."""
        return self.reasoning_effort or (self.reasoning.effort if self.reasoning else None)
