"""Parses schedules: five cron fields, or short forms such as ``Mon 08:00``, in a time zone.

    Mon 08:00          on Mondays at eight; Mon-Fri 08:00, Mon,Thu 08:00
    08:00, daily 08:00
    @hourly, @daily, @weekly, @monthly, @yearly
    */15 * * * *       minute, hour, day of month, month, day of week (0 or 7 is Sunday; names in both)

The fields have the meaning of Debian's cron. If day of month and day of week are both restricted, either may match.
A fixed time that daylight saving skips is due right after the change; a time that occurs twice is due only the first
time. A rule with ``*`` in minute or hour follows elapsed time instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from debug_server.errors import InvalidInputError

_NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_CLOCK = re.compile(r"(?:(?P<days>[A-Za-z,-]+)\s+)?(?P<hour>\d{1,2}):(?P<minute>\d{2})")
_LONG_NAME = re.compile(r"\b([A-Za-z]{3})[A-Za-z]+\b")  # Monday, January
_TO_SUNDAY = re.compile(r"-sun\b|-0\b", re.IGNORECASE)  # Sat-Sun: a week ends with day 7
_FIELDS = ("minute", "hour", "day-of-month", "month", "day-of-week")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The minutes at which something is due."""

    text: str
    fields: str  # as cronsim takes them
    zone: ZoneInfo

    def after(self, moment: datetime) -> datetime:
        """The first time that is due after ``moment``, in UTC."""
        return next(CronSim(self.fields, moment.astimezone(self.zone))).astimezone(UTC)

    def latest(self, due: datetime, now: datetime) -> datetime:
        """The last due time from ``due`` (itself a due time) to ``now``."""
        # reverse yields times strictly before its start, so it begins one second later
        just_after = now.astimezone(self.zone) + timedelta(seconds=1)
        return max(due, next(CronSim(self.fields, just_after, reverse=True)).astimezone(UTC))


def parse_rule(text: str, zone: str = "UTC") -> Rule:
    """Parse a rule; InvalidInputError says what is wrong."""
    try:
        time_zone = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInputError(f"time zone {zone!r} is not known: use a name such as Europe/Berlin or UTC") from error
    fields = _fields(text)
    if len(fields) != len(_FIELDS):
        raise InvalidInputError(f"schedule {text!r} is neither five cron fields nor a time such as 'Mon 08:00'")
    rule = Rule(text=text, fields=" ".join(fields), zone=time_zone)
    try:
        rule.after(datetime(2024, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise _wrong(text, fields, error) from error
    except StopIteration:
        raise InvalidInputError(f"schedule {text!r} is never due: no month has such a day") from None
    return rule


def _fields(text: str) -> list[str]:
    words = _NAMES.get(text.strip().lower(), text).split()
    if found := _CLOCK.fullmatch(text.strip()):
        days = found["days"] or "*"
        words = [found["minute"], found["hour"], "*", "*", "*" if days.lower() == "daily" else days]
    if len(words) != len(_FIELDS):
        return words
    *others, month, week = words
    return [*others, _LONG_NAME.sub(r"\1", month), _TO_SUNDAY.sub("-7", _LONG_NAME.sub(r"\1", week))]


def _wrong(text: str, fields: list[str], error: CronSimError) -> InvalidInputError:
    name = str(error).removeprefix("Bad ")
    if name == "day-of-month" and fields[2].isdigit() and 1 <= int(fields[2]) <= 31:
        return InvalidInputError(f"schedule {text!r} is never due: none of its months has a day {fields[2]}")
    value = fields[_FIELDS.index(name)] if name in _FIELDS else text
    return InvalidInputError(f"schedule {text!r}: {name} {value!r} is not valid")
