"""Dates and times, in whatever format they come: bounds, units, and texts of them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from jobs.decode.base import Refused

# Bounds of years 1 to 9999.
FIRST_DAY, LAST_DAY = date.min.toordinal() - 719_163, date.max.toordinal() - 719_163
FIRST_MICROSECOND, LAST_MICROSECOND = FIRST_DAY * 86_400_000_000, (LAST_DAY + 1) * 86_400_000_000 - 1
# Microseconds since midnight.
LAST_OF_DAY = 86_400_000_000 - 1
# MySQL's TIME has up to 838:59:59, also negative; 24:00 is a time of day in PostgreSQL.
LONGEST_TIME = 839 * 3_600_000_000 - 1

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)

# Factor and divisor from a unit to microseconds.
UNITS = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}

DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?(?P<zone>[Zz]|[+-]\d\d(:?[0-5]\d)?)?", re.ASCII)


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01; raises ValueError."""
    return date(year, month, day).toordinal() - 719_163


def text_to_date(text: str, where: str) -> int:
    """Days since 1970-01-01 of ``YYYY-MM-DD``; raises Refused."""
    match = DATE.fullmatch(text)
    try:
        if match:
            return days_of(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        pass
    raise Refused("type", f"{where}: expected date, found a string that is no date YYYY-MM-DD")


def text_to_microseconds(text: str, expected: str, where: str) -> int:
    """Microseconds since 1970-01-01 of an RFC 3339 string; raises Refused.

    Args:
        expected: ``timestamp``, or ``timestamp_ntz``, which must have no zone.
    """
    microseconds = _microseconds(text, zoned=expected == "timestamp")
    if microseconds is None:
        what = "time" if expected == "timestamp" else "time without zone"
        taken = f"an RFC 3339 {what} or a number"
        raise Refused("type", f"{where}: expected {expected} ({taken}), found another string")
    if not FIRST_MICROSECOND <= microseconds <= LAST_MICROSECOND:
        raise Refused("range", f"{where}: expected {expected}, found a year outside 1 to 9999")
    return microseconds


def _microseconds(text: str, zoned: bool) -> int | None:
    match = _TIMESTAMP.fullmatch(text)
    if match is None or (match["zone"] and not zoned):
        return None
    try:
        found = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    return (found.replace(tzinfo=found.tzinfo or UTC) - _EPOCH) // _MICROSECOND
