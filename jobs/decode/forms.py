"""Reads values of the types `uuid`, `time` and `fixed(n)`, which are landed as text or bytes of one form.

One form for each value, because keys are compared as they are landed:

============  ==============================  =================================================================
type          landed as                       read from
============  ==============================  =================================================================
``uuid``      36 characters in lower case     the same in any case; 16 bytes
``time``      ``HH:MM:SS``, with six digits   ISO text without a zone, digits after microseconds are cut; numbers in
              after a point if not all zero   milliseconds, or in the unit of the schema or of `time_unit`
``fixed(n)``  n bytes                         n bytes
============  ==============================  =================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Refused
from jobs.decode.times import LAST_OF_DAY, UNITS
from jobs.schema.own_values import UUID_TEXT, time_texts, times
from jobs.schema.types import length_of
from jobs.schema.wire import Wire

_UUID = re.compile(UUID_TEXT)
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d+))?)?", re.ASCII)
_AFTER_MICROSECONDS = r"(:\d\d\.\d{6})\d+$"
# MySQL's times, and those of `jobs.decode.scalars`, may be below zero or longer than a day.
_OF_MORE = re.compile(r"-?\d{2,3}:[0-5]\d:[0-5]\d(\.\d+)?", re.ASCII)


def in_form(form: str, where: str) -> Callable[[Any], Any]:
    """A function from text or bytes to the same value in its one form; it raises Refused."""
    if form == "uuid":
        return lambda text: _uuid(text, where)
    if form == "time":
        return lambda text: _time(text, where)
    length = length_of(form)

    def convert(value: bytes) -> bytes:
        if len(value) != length:
            raise Refused("range", f"{where}: expected {form}, found {len(value)} bytes")
        return value

    return convert


def _uuid(text: str, where: str) -> str:
    if not _UUID.fullmatch(text):
        raise Refused("type", f"{where}: expected uuid, found a string that is none")
    return text.lower()


def _time(text: str, where: str) -> str:
    match = _TIME.fullmatch(text)
    if match is None and _OF_MORE.fullmatch(text):
        raise Refused("range", f"{where}: expected time, found one that is not within a day")
    if match is None:
        raise Refused("type", f"{where}: expected time, found a string that is no time of day HH:MM:SS without a zone")
    hours, minutes, seconds, digits = match.groups("")
    rest = digits[:6].ljust(6, "0")
    return f"{hours}:{minutes}:{seconds or '00'}{f'.{rest}' if rest.strip('0') else ''}"


def time_of_number(unit: str, where: str) -> Callable[[int], str]:
    """A function from a number of this unit since midnight to the form of `time`; it raises Refused."""
    multiply, divide = UNITS[unit]

    def convert(value: int) -> str:
        microseconds = value * multiply // divide
        if not 0 <= microseconds <= LAST_OF_DAY:
            raise Refused("range", f"{where}: expected time, found one that is not within a day")
        seconds, rest = divmod(microseconds, 1_000_000)
        text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return f"{text}.{rest:06}" if rest else text

    return convert


def wire_in_form(wire: Wire, form: str) -> Wire:
    """The wire type whose text or bytes become the form: bytes as a uuid, numbers as milliseconds since midnight."""
    if form == "uuid" and wire.kind == "bytes" and not (wire.logical or wire.bytes_as):
        return replace(wire, logical="uuid")
    if form == "time" and wire.kind in ("int", "long") and not wire.logical:
        return replace(wire, logical="time-ms")
    if wire.kind == "union":
        return replace(wire, fields=tuple((name, wire_in_form(branch, form)) for name, branch in wire.fields))
    return wire


# Debezium's wall clock, as ISO text with a Z.
ISO_TIME = "time-iso"


def has_form(wire: Wire, form: str) -> bool:
    """Whether values of the wire type (`wire_in_form`) may have the form."""
    if wire.kind == "union":
        return all(has_form(branch, form) for _, branch in wire.fields)
    if form == "uuid":
        return (wire.kind == "string" and not wire.bytes_as) or wire.logical == "uuid"
    if form == "time":
        return (wire.kind == "string" and not wire.bytes_as) or wire.logical.startswith("time-")
    return wire.kind == "bytes"


def all_in_form(values: pa.Array, form: str) -> pa.Array:
    """As `in_form`, for whole columns; raises ArrowInvalid if a value is not of the form, or cannot be read here."""
    if form == "uuid":
        lower = pc.ascii_lower(values)
        check_all(pc.match_substring_regex(lower, f"^{UUID_TEXT}$"), "a string that is no uuid")
        return lower
    if form == "time":
        # Arrow reads times with less than HH:MM too, and refuses more digits than six.
        check_all(pc.match_substring_regex(values, r"^\d\d:\d\d"), "a string that is no time")
        return time_texts(times(pc.replace_substring_regex(values, _AFTER_MICROSECONDS, r"\1")))
    check_all(pc.equal(pc.binary_length(values), length_of(form)), "bytes of another length")
    return values


def check_all(holds: pa.Array, text: str) -> None:
    """Raises ArrowInvalid where a value of the column is what the text says."""
    if not pc.all(holds, min_count=0).as_py():
        raise pa.ArrowInvalid(text)
