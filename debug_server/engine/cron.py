"""When a schedule is due: cron's five fields and the forms that people write, in a time zone.

    Mon 08:00          on Mondays at eight; Mon-Fri 08:00, Mon,Thu 08:00
    08:00, daily 08:00
    */15 * * * *       minute, hour, day of month, month, day of week (0 or 7 is Sunday; names in both)

As cron has it, a day matches when day of month or day of week do, if both are restricted. A time that the clock skips
in spring is due as much later as the clock skipped (02:30 at 03:30); one that it shows twice in autumn is due once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from debug_server.errors import InvalidInputError

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK = re.compile(r"(?:(?P<days>[A-Za-z,-]+)\s+)?(?P<hour>\d{1,2}):(?P<minute>\d{2})")
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7))
_LOOK_BACK_HOURS = (1, 24, 24 * 8, 24 * 32, 24 * 367)
_SEARCH_DAYS = 366 * 8 + 2  # the 29th of February comes at the latest after eight years


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The minutes at which something is due."""

    text: str
    zone: ZoneInfo
    minutes: frozenset[int]
    hours: frozenset[int]
    month_days: frozenset[int]
    months: frozenset[int]
    week_days: frozenset[int]  # 0 is Sunday
    either_day: bool  # both kinds of day are restricted: one of them is enough

    def after(self, moment: datetime) -> datetime:
        """The first time that is due after ``moment``, in UTC."""
        local = moment.astimezone(self.zone)
        day = local.date()
        for _ in range(_SEARCH_DAYS):
            if self._on(day.year, day.month, day.day):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=self.zone)
                        due = wall.astimezone(UTC)
                        if due > moment:
                            return due
            day += timedelta(days=1)
        raise InvalidInputError(f"schedule {self.text!r} is never due: no month has such a day")

    def latest(self, due: datetime, now: datetime) -> datetime:
        """The last time from ``due``, which is one, to ``now``; a rule of every minute is not walked for weeks."""
        for hours in _LOOK_BACK_HOURS:
            start = now - timedelta(hours=hours)
            if start <= due:
                break
            if (found := self.after(start)) <= now:
                due = found
                break
        while (following := self.after(due)) <= now:
            due = following
        return due

    def _on(self, year: int, month: int, day: int) -> bool:
        if month not in self.months:
            return False
        by_month = day in self.month_days
        by_week = datetime(year, month, day).isoweekday() % 7 in self.week_days
        return by_month or by_week if self.either_day else by_month and by_week


def parse_rule(text: str, zone: str = "UTC") -> Rule:
    """The rule that was written; InvalidInputError names what is wrong with it."""
    try:
        place = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInputError(f"time zone {zone!r} is not known: use a name such as Europe/Berlin or UTC") from error
    fields = _clock_fields(text) or text.split()
    if len(fields) != len(_FIELDS):
        raise InvalidInputError(f"schedule {text!r} is neither five cron fields nor a time such as 'Mon 08:00'")
    sets = [_field(field, *bounds, text) for field, bounds in zip(fields, _FIELDS, strict=True)]
    rule = Rule(
        text=text,
        zone=place,
        minutes=sets[0],
        hours=sets[1],
        month_days=sets[2],
        months=sets[3],
        week_days=frozenset(number % 7 for number in sets[4]),
        either_day=fields[2] != "*" and fields[4] != "*",
    )
    rule.after(datetime(2024, 1, 1, tzinfo=UTC))  # a day that no month has is said here, not at midnight
    return rule


def _clock_fields(text: str) -> list[str] | None:
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        return None
    days = found["days"] or "*"
    return [found["minute"], found["hour"], "*", "*", "*" if days.lower() == "daily" else days]


def _field(field: str, name: str, low: int, high: int, text: str) -> frozenset[int]:
    found: set[int] = set()
    for item in field.split(","):
        span, _, step = item.partition("/")
        if step and (not step.isdigit() or int(step) == 0):
            raise InvalidInputError(f"schedule {text!r}: step {step!r} of {name} must be a number above zero")
        if span == "*":
            first, last = low, high
        else:
            begin, dash, end = span.partition("-")
            first = _number(begin, name, low, high, text)
            last = _number(end, name, low, high, text) if dash else (high if step else first)
        if name == "day of week" and last < first:  # Sat-Sun
            last += 7
        if last < first:
            raise InvalidInputError(f"schedule {text!r}: the range {span!r} of {name} runs backwards")
        found.update(range(first, last + 1, int(step or 1)))
    return frozenset(found)


def _number(word: str, name: str, low: int, high: int, text: str) -> int:
    lower = word.lower()
    if name == "day of week" and lower[:3] in _DAYS and lower.isalpha():
        return _DAYS.index(lower[:3])
    if name == "month" and lower[:3] in _MONTHS and lower.isalpha():
        return _MONTHS.index(lower[:3]) + 1
    if not word.isdigit() or not low <= int(word) <= high:
        raise InvalidInputError(f"schedule {text!r}: {name} {word!r} must be from {low} to {high}")
    return int(word)
