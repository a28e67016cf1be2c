"""Converts plain values of a scalar wire type to a declared type, whole columns at a time.

By the rules of `jobs.decode.scalars`. The row decoder reads what is not implemented here, and values that raise
ArrowInvalid because one does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.columns.decimals import MOST_SCALE, fitting, of_texts, unscaled
from jobs.decode.forms import check_all
from jobs.decode.json_wire import declared_binary, declared_time, microseconds, within
from jobs.decode.scalars import as_it_is
from jobs.decode.times import LONGEST_TIME
from jobs.schema.own_values import uuid_texts
from jobs.schema.wire import Wire

Cast = Callable[[pa.Array], pa.Array]
"""Converts to a declared type; raises ArrowInvalid if a value does not fit."""

INSTANT = "instant"
"""A kind of wire: an instant that was read as microseconds."""

_HOUR = 3_600_000_000
_WHOLE = ("int", "long", "ulong")


def scalar_cast(wire: Wire, kind: pa.DataType) -> Cast | None:
    """The cast; None if it is not implemented here."""
    if wire.kind == "record":
        return None
    for fits, build in _SCALARS:
        if fits(kind):
            return build(wire, kind)
    return None


def _boolean(wire: Wire, _kind: pa.DataType) -> Cast | None:
    return as_it_is if wire.kind == "boolean" else None


def _integer(wire: Wire, kind: pa.DataType) -> Cast | None:
    return (lambda values: values.cast(kind)) if wire.kind in _WHOLE else None


def _float(wire: Wire, kind: pa.DataType) -> Cast | None:
    if wire.kind not in ("float", "double", *_WHOLE) or wire.logical:
        return None
    if wire.kind == "float" and kind == pa.float32() and not wire.json_number:
        return as_it_is

    def cast(values: pa.Array) -> pa.Array:
        doubles = values.cast(pa.float64(), safe=False)
        if wire.json_number:
            check_all(pc.is_finite(doubles), "a number that does not fit")
            # Zero is below zero only if written as -0.0, not as -0.
            check_all(pc.greater(pc.divide(1.0, doubles), -math.inf), "a zero below zero")
        # A float's digits in JSON are another number when they are read as a double.
        found = doubles.cast(pa.float32() if wire.kind == "float" else kind, safe=False).cast(kind)
        check_all(pc.or_(pc.is_finite(found), pc.invert(pc.is_finite(doubles))), "a number that does not fit")
        return found

    return cast


def _decimal(wire: Wire, kind: pa.Decimal128Type) -> Cast | None:
    if wire.logical == "decimal":
        number = _unscaled(wire)
        return None if number is None else lambda values: fitting(number(values), kind)
    if wire.kind in _WHOLE and not wire.logical:
        return lambda values: fitting(values, kind)
    if wire.kind == "string" and wire.logical in ("", "number"):
        return lambda values: of_texts(values, kind)
    return None


def _unscaled(wire: Wire) -> Cast | None:
    """A cast from a decimal's bytes to the number."""
    if not 0 <= wire.scale <= MOST_SCALE:
        return None
    return lambda values: unscaled(declared_binary(values) if wire.bytes_as else values, wire.scale)


def _string(wire: Wire, _kind: pa.DataType) -> Cast | None:
    if wire.logical.startswith("time-") and wire.kind != "string":
        return _time_of_day(wire)
    if wire.logical == "decimal":
        number = _unscaled(wire)
        # Arrow would write decimals with a larger scale with an exponent.
        return (lambda values: number(values).cast(pa.string())) if number and wire.scale <= 6 else None
    if wire.logical == "uuid" and wire.kind == "bytes":
        return _uuid
    if wire.kind == "boolean":  # for a column of type `text`, the only one that accepts it
        return lambda values: values.cast(pa.string())
    return as_it_is if wire.kind == "string" and not wire.bytes_as else None


def _time_of_day(wire: Wire) -> Cast:
    def cast(values: pa.Array) -> pa.Array:
        signed = within(microseconds(values, wire.logical.removeprefix("time-")), -LONGEST_TIME, LONGEST_TIME)
        micros = pc.abs(signed)
        hours = pc.divide(micros, _HOUR)
        rest = pc.subtract(micros, pc.multiply(hours, _HOUR)).cast(pa.time64("us")).cast(pa.string())
        whole = pc.equal(pc.multiply(pc.divide(micros, 1_000_000), 1_000_000), micros)
        digits = pc.if_else(whole, pc.utf8_slice_codeunits(rest, 2, 8), pc.utf8_slice_codeunits(rest, 2))
        sign = pc.if_else(pc.less(signed, 0), "-", "")
        return pc.binary_join_element_wise(sign, pc.utf8_lpad(hours.cast(pa.string()), 2, "0"), digits, "")

    return cast


def _uuid(values: pa.Array) -> pa.Array:
    check_all(pc.equal(pc.binary_length(values), 16), "an uuid that has not 16 bytes")
    return uuid_texts(values)


def _binary(wire: Wire, _kind: pa.DataType) -> Cast | None:
    if wire.kind != "bytes":
        return None
    return declared_binary if wire.bytes_as else as_it_is


def _date(wire: Wire, kind: pa.DataType) -> Cast | None:
    if wire.logical == "date-iso":
        return lambda values: declared_time(_without_z(values), kind)
    is_date = wire.kind in ("int", "long") and wire.logical in ("date", "")
    is_text = wire.kind == "string" and not wire.bytes_as
    return (lambda values: declared_time(values, kind)) if is_date or is_text else None


def _without_z(values: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(values, "Z$", "")


def _timestamp(wire: Wire, kind: pa.DataType) -> Cast | None:
    if wire.kind == "string" and wire.logical in ("", "timestamp-text"):
        return lambda values: declared_time(values, kind)
    if wire.logical == "timestamp-iso":
        return lambda values: declared_time(values if kind.tz else _without_z(values), kind)
    if wire.kind not in ("int", "long", INSTANT) or not (wire.logical.startswith("timestamp") or not wire.logical):
        return None
    unit = wire.logical.removeprefix("timestamp-") or "ms"
    return lambda values: declared_time(values, kind, unit)


_SCALARS: list[tuple[Callable[[pa.DataType], bool], Callable[[Wire, pa.DataType], Cast | None]]] = [
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal128, _decimal),
    (pa.types.is_string, _string),
    (pa.types.is_binary, _binary),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _timestamp),
]
