"""Converts parsed values of a known wire type to declared scalar types, by the rules of `convert`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from operator import index
from typing import Any
from uuid import UUID

import pyarrow as pa

from jobs.decode.base import Refused
from jobs.decode.json_values import (
    Exact,
    base64_bytes,
    base64_value,
    exact_decimal,
    floating,
    mismatch,
    single,
    unfit,
    unscaled,
    whole,
)
from jobs.decode.times import (
    FIRST_DAY,
    FIRST_MICROSECOND,
    LAST_DAY,
    LAST_MICROSECOND,
    LONGEST_TIME,
    UNITS,
    days_of,
    text_to_date,
    text_to_microseconds,
)
from jobs.schema.types import type_name
from jobs.schema.wire import Wire

Convert = Callable[[Any], Any]
_LIMITS = {pa.int32(): (-(2**31), 2**31 - 1), pa.int64(): (-(2**63), 2**63 - 1)}


def as_it_is(value: Any) -> Any:
    return value


# Columns for which a number of JSON may have a fraction, although its schema says that it is whole.
_OF_ANY_DIGITS = {pa.float32().id, pa.float64().id, pa.decimal128(1).id}


def scalar_converter(wire: Wire, kind: pa.DataType, where: str) -> Convert | None:
    """A function for values that are not null, which raises Refused; `as_it_is` if no conversion is needed.

    None if the wire type cannot be converted to the declared type.
    """
    for fits, build in _SCALARS:
        if fits(kind):
            found = build(wire, kind, where)
            is_whole = wire.json_number and wire.kind in ("int", "long") and kind.id not in _OF_ANY_DIGITS
            return _of_whole(found, type_name(kind), where) if found and is_whole else found
    return None


def _of_whole(convert: Convert, expected: str, where: str) -> Convert:
    """The conversion of a number of JSON, which has to be whole."""

    def convert_whole(value: Any) -> Any:
        if type(value) is not int:
            if type(value) is not Exact:
                raise mismatch(where, expected, value)
            value = whole(value.text, where, expected)
        return convert(value)

    return convert_whole


def _integer(wire: Wire, kind: pa.DataType, where: str) -> Convert | None:
    if wire.kind not in ("int", "long", "ulong"):
        return None
    if not wire.json_number and (wire.kind == "int" or (wire.kind == "long" and kind == pa.int64())):
        return as_it_is
    return _bounded(*_LIMITS[kind], kind, where)


def _bounded(low: int, high: int, kind: pa.DataType, where: str) -> Convert:
    def convert(value: int) -> int:
        if not low <= value <= high:
            raise unfit(where, type_name(kind))
        return value

    return convert


def _float(wire: Wire, kind: pa.DataType, where: str) -> Convert | None:
    if wire.kind not in ("float", "double", "int", "long", "ulong") or wire.logical:
        return None
    if wire.json_number:
        # A float's digits in JSON are another number when read as a double.
        nearest = single if wire.kind == "float" or kind == pa.float32() else float
        return floating(type_name(kind), where, nearest, (int, Exact))
    if wire.kind == "float" or (wire.kind == "double" and kind == pa.float64()):
        return as_it_is
    return float if kind == pa.float64() else _single(kind, where)


def _single(kind: pa.DataType, where: str) -> Convert:
    def convert(value: float) -> float:
        try:
            return single(value)
        except OverflowError:
            raise unfit(where, type_name(kind)) from None

    return convert


def _decimal(wire: Wire, kind: pa.Decimal128Type, where: str) -> Convert | None:
    number = _number(wire)
    if number is None:
        return None
    whole, allowed = wire.precision - wire.scale, kind.precision - kind.scale
    as_declared = wire.logical == "decimal" and not wire.bytes_as and wire.precision > 0
    if as_declared and wire.scale <= kind.scale and whole <= allowed:
        return number  # always fits; Arrow refuses bytes with too many digits

    def convert(value: Any) -> Decimal:
        try:
            return exact_decimal(number(value), kind, where)
        except (InvalidOperation, ValueError, TypeError, KeyError):
            raise Refused("type", f"{where}: expected {type_name(kind)}, found {wire} that is no number") from None

    return convert


def _number(wire: Wire) -> Callable[[Any], Decimal] | None:
    """A function from a value of this wire type to the exact number."""
    if wire.logical == "decimal":
        return _unscaled(wire)
    if wire.logical == "variable-decimal":
        inner = wire.field("value")
        base64 = inner is not None and bool(inner.bytes_as)
        return lambda value: unscaled(base64_bytes(value["value"]) if base64 else value["value"], index(value["scale"]))
    if wire.kind in ("int", "long", "ulong") and not wire.logical:
        return _digits if wire.json_number else Decimal
    if wire.kind == "string" and wire.logical in ("", "number"):
        return _text_number
    if wire.kind in ("float", "double"):
        return lambda value: Decimal(repr(value))
    return None


def _digits(value: Any) -> Decimal:
    """The number that JSON has; raises TypeError for anything else."""
    if type(value) not in (int, Exact):
        raise TypeError("no number")
    return Decimal(value.text if type(value) is Exact else value)


def _text_number(text: str) -> Decimal:
    number = Decimal(text)
    if "_" in text or not text.isascii():  # Python accepts more spellings of numbers than others write
        raise ValueError("no number")
    return number


def _unscaled(wire: Wire) -> Callable[[Any], Decimal]:
    base64 = wire.bytes_as == "base64"

    def number(value: Any) -> Decimal:
        if base64 and type(value) in (int, Exact):
            return _digits(value)  # Connect's `decimal.format: NUMERIC`
        return unscaled(base64_bytes(value) if base64 else value, wire.scale)

    return number


def _string(wire: Wire, _kind: pa.DataType, where: str) -> Convert | None:
    if wire.logical.startswith("time-") and wire.kind != "string":
        return _time_of_day(wire, where)
    if wire.logical in ("decimal", "variable-decimal"):
        number = _number(wire)
        assert number is not None
        return lambda value: f"{number(value):f}"
    if wire.logical == "uuid" and wire.kind == "bytes":
        return lambda value: _uuid(value, where)
    return as_it_is if wire.kind == "string" and not wire.bytes_as else None


def _uuid(value: bytes, where: str) -> str:
    if len(value) != 16:
        raise Refused("range", f"{where}: expected the 16 bytes of a uuid, found {len(value)}")
    return str(UUID(bytes=value))


def _time_of_day(wire: Wire, where: str) -> Convert:
    if wire.logical == "time-parts":
        from_nanoseconds = _time_of_day(Wire("long", "time-ns"), where)
        return lambda value: from_nanoseconds(_nanoseconds(value))
    multiply, divide = UNITS[wire.logical.removeprefix("time-")]

    def convert(value: int) -> str:
        microseconds = value * multiply // divide
        if abs(microseconds) > LONGEST_TIME:
            raise Refused("range", f"{where}: expected a time of up to 838 hours, found a number that does not fit")
        seconds, rest = divmod(abs(microseconds), 1_000_000)
        text = f"{'-' if microseconds < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return f"{text}.{rest:06}" if rest else text

    return convert


def _nanoseconds(parts: Mapping[str, int]) -> int:
    seconds = parts["hours"] * 3600 + parts["minutes"] * 60 + parts["seconds"]
    return seconds * 1_000_000_000 + parts["nanos"]


def _binary(wire: Wire, _kind: pa.DataType, where: str) -> Convert | None:
    if wire.bytes_as:
        return lambda value: base64_value(value, where)
    return as_it_is if wire.kind == "bytes" else None


def _date(wire: Wire, kind: pa.DataType, where: str) -> Convert | None:
    if wire.logical == "date-parts":
        return lambda value: _days(value, where)
    if wire.kind in ("int", "long") and wire.logical in ("date", ""):
        return _bounded(FIRST_DAY, LAST_DAY, kind, where)
    if wire.logical.startswith("timestamp") and wire.kind != "string":  # Connect's Date counts in days only as a class
        return None
    if wire.logical == "date-iso":
        return lambda value: text_to_date(value.removesuffix("Z"), where)
    return (lambda value: text_to_date(value, where)) if wire.kind == "string" and not wire.bytes_as else None


def _days(parts: Mapping[str, int], where: str) -> int:
    try:
        return days_of(parts["year"], parts["month"], parts["day"])
    except ValueError:
        # Google's type also stands for a month, a year, or a birthday without a year.
        raise Refused("type", f"{where}: expected date, found a year, month and day that are no date") from None


def _timestamp(wire: Wire, kind: pa.DataType, where: str) -> Convert | None:
    expected = type_name(kind)
    if wire.kind == "string" and wire.logical in ("", "timestamp-text"):
        return lambda value: text_to_microseconds(value, expected, where)
    if wire.logical == "timestamp-iso":
        return lambda value: text_to_microseconds(value if kind.tz else value.removesuffix("Z"), expected, where)
    if wire.kind not in ("int", "long") or not (wire.logical.startswith("timestamp") or not wire.logical):
        return None
    multiply, divide = UNITS[wire.logical.removeprefix("timestamp-") or "ms"]

    def convert(value: int) -> int:
        microseconds = value * multiply // divide
        if not FIRST_MICROSECOND <= microseconds <= LAST_MICROSECOND:
            raise unfit(where, expected)
        return microseconds

    return convert


def _boolean(wire: Wire, _kind: pa.DataType, _where: str) -> Convert | None:
    return as_it_is if wire.kind == "boolean" else None


_SCALARS: list[tuple[Callable[[pa.DataType], bool], Callable[[Wire, Any, str], Convert | None]]] = [
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal128, _decimal),
    (pa.types.is_string, _string),
    (pa.types.is_binary, _binary),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _timestamp),
]
