"""When schedules are due."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from debug_server.config.cron import parse_rule
from debug_server.errors import InvalidInputError

MONDAY = datetime(2026, 11, 16, 7, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "zone", "after", "due"),
    [
        ("Mon 08:00", "UTC", "2026-11-16T07:59", "2026-11-16T08:00"),
        ("Mon 08:00", "UTC", "2026-11-16T08:00", "2026-11-23T08:00"),
        ("Fri 16:00", "Europe/Berlin", "2026-11-16T08:00", "2026-11-20T15:00"),
        ("daily 08:30", "UTC", "2026-11-16T09:00", "2026-11-17T08:30"),
        ("08:30", "UTC", "2026-11-16T09:00", "2026-11-17T08:30"),
        ("Mon-Fri 08:00", "UTC", "2026-11-20T08:00", "2026-11-23T08:00"),
        ("Sat,Sun 08:00", "UTC", "2026-11-16T08:00", "2026-11-21T08:00"),
        ("*/15 * * * *", "UTC", "2026-11-16T08:00", "2026-11-16T08:15"),
        ("0 8 * * 1", "UTC", "2026-11-16T08:00", "2026-11-23T08:00"),
        ("0 8 * * 7", "UTC", "2026-11-16T08:00", "2026-11-22T08:00"),
        ("0 0 1 jan *", "UTC", "2026-11-16T08:00", "2027-01-01T00:00"),
        ("0 0 13 * fri", "UTC", "2026-11-16T08:00", "2026-11-20T00:00"),
        ("0 0 29 2 *", "UTC", "2026-11-16T08:00", "2028-02-29T00:00"),
        ("Saturday-Sunday 08:00", "UTC", "2026-11-21T08:00", "2026-11-22T08:00"),
        ("@daily", "UTC", "2026-11-16T08:00", "2026-11-17T00:00"),
        ("@weekly", "UTC", "2026-11-16T08:00", "2026-11-22T00:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T00:00", "2026-03-29T01:00"),  # the clock skips 02:30
        ("0 * * * *", "Europe/Berlin", "2026-10-25T00:00", "2026-10-25T01:00"),  # the second 02:00 of that night
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30", "2026-10-26T01:30"),  # it showed 02:30 already
    ],
)
def test_the_next_time(text: str, zone: str, after: str, due: str) -> None:
    """Cron fields and the forms that people write, in a time zone, over changes of the clock."""
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC)
    assert parse_rule(text, zone).after(moment) == datetime.fromisoformat(due).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Mon", "Mon"),
        ("Xyz 08:00", "Xyz"),
        ("25:00", "25"),
        ("* * * *", "five"),
        ("61 * * * *", "61"),
        ("*/0 * * * *", r"\*/0"),
        ("9-5 * * * *", "minute '9-5'"),
        ("0 0 31 2 *", "never"),
        ("", "five"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(text: str, word: str) -> None:
    """The message names the wrong value."""
    with pytest.raises(InvalidInputError, match=word):
        parse_rule(text)


def test_an_unknown_time_zone_is_refused() -> None:
    """Before anything is scheduled in it."""
    with pytest.raises(InvalidInputError, match="Mars/Base"):
        parse_rule("Mon 08:00", "Mars/Base")


@pytest.mark.parametrize(
    ("text", "first", "now", "latest"),
    [
        ("* * * * *", "2026-01-01T00:00", "2026-11-16T08:00", "2026-11-16T08:00"),
        ("Fri 16:00", "2026-10-02T16:00", "2026-11-16T08:00", "2026-11-13T16:00"),
        ("0 0 29 2 *", "2024-02-29T00:00", "2026-11-16T08:00", "2024-02-29T00:00"),
        ("*/15 * * * *", "2026-11-16T07:45", "2026-11-16T08:10", "2026-11-16T08:00"),
    ],
)
def test_the_last_time_that_was_missed(text: str, first: str, now: str, latest: str) -> None:
    """The one nearest to now, whether the rule is due by the minute or by the leap year."""
    moments = [datetime.fromisoformat(word).replace(tzinfo=UTC) for word in (first, now, latest)]
    assert parse_rule(text).latest(moments[0], moments[1]) == moments[2]
