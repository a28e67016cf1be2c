"""Protobuf messages that are one value: instants, dates, times of day, JSON (`jobs.schema.protobuf.VALUES`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from typing import Any

from google.protobuf import json_format

from jobs.decode.base import Refused
from jobs.schema.protobuf import DATE, JSON, TIME_OF_DAY, TIMESTAMP

_EPOCH = date(1970, 1, 1)
_BILLION = 1_000_000_000


def value_of(name: str) -> Callable[[Any], Any]:
    """A function from a message of this name to the value of its wire type."""
    return _json if name in JSON else {TIMESTAMP: _instant, DATE: _days, TIME_OF_DAY: _nanoseconds}[name]


def _instant(value: Any) -> int:
    found: int = value.seconds * _BILLION + value.nanos
    return found


def _days(value: Any) -> int:
    try:
        return (date(value.year, value.month, value.day) - _EPOCH).days
    except ValueError:
        # Google's type also stands for a month, a year, or a birthday without a year.
        raise Refused("type", f"expected date, found a {DATE} that is no day") from None


def _nanoseconds(value: Any) -> int:
    found: int = (value.hours * 3600 + value.minutes * 60 + value.seconds) * _BILLION + value.nanos
    return found


def _json(value: Any) -> str:
    try:
        return json.dumps(json_format.MessageToDict(value), ensure_ascii=False, separators=(",", ":"))
    except json_format.SerializeToJsonError:
        raise Refused("type", "expected JSON, found a number that JSON does not have") from None
