"""The faults of an invalid request: field, reason and value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

# Values of these fields, and those inside them, may be secrets.
_SECRET_FIELDS = frozenset(
    {"env", "data", "patch", "settings", "metadata", "prompt", "status_callback_token", "sandbox"}
)
_SHOWN_CHARACTERS = 80  # of a value
_SHOWN_FAULTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One wrong field."""

    field: str
    reason: str  # with the value, unless it is long or may be secret

    @property
    def message(self) -> str:
        """The field and the reason, as one phrase."""
        return f"{self.field}: {self.reason}"


def faults_of(error: ValidationError, *, whole: str = "body") -> Sequence[FieldError]:
    """Every fault; a fault without a field gets the field name ``whole``."""
    found = error.errors(include_url=False, include_context=False)
    return [_fault(".".join(map(str, item["loc"])) or whole, item["msg"], item["input"]) for item in found]


def sentence_of(error: ValidationError, *, whole: str = "body") -> str:
    """The first few faults in one line."""
    faults = faults_of(error, whole=whole)
    shown = [fault.message for fault in faults[:_SHOWN_FAULTS]]
    return "; ".join([*shown, "..."] if len(faults) > len(shown) else shown)


def _fault(field: str, message: str, value: object) -> FieldError:
    text = message.removeprefix("Value error, ")
    shown = _shown(value) if field.partition(".")[0] not in _SECRET_FIELDS else ""
    return FieldError(field=field, reason=f"{text[:1].lower()}{text[1:]}{shown}")


def _shown(value: object) -> str:
    text = repr(value)
    return f", not {text}" if isinstance(value, str | int | float) and len(text) <= _SHOWN_CHARACTERS else ""
