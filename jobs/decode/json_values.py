"""Converts parsed JSON values to declared scalar types, by the rules of `json_strict`."""

from __future__ import annotations

import binascii
import math
import re
import struct
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from typing import Any

import pyarrow as pa

from jobs.decode.base import Refused
from jobs.decode.forms import in_form, time_of_number
from jobs.decode.json_dialect import base64_scale, unit_of
from jobs.decode.times import (
    FIRST_DAY,
    FIRST_MICROSECOND,
    LAST_DAY,
    LAST_MICROSECOND,
    UNITS,
    text_to_date,
    text_to_microseconds,
)
from jobs.schema.types import form_of, type_name
from resources.errors import ConfigurationError

Convert = Callable[[Any], Any]

NUMERIC = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# JSON has no such numbers; Debezium, Kafka Connect and Jackson write these texts.
NON_FINITE = {text: float(text) for text in ("NaN", "Infinity", "-Infinity")}


class Integer(str):
    """The text of a JSON number without fraction and exponent; converted exactly, and only if a column needs it."""


class Real(str):
    """The text of any other JSON number."""


class Exact(float):
    """A JSON number with its text, for columns that need all its digits."""

    __slots__ = ("text",)

    def __new__(cls, text: str) -> Exact:
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str


_FOUND = {
    bool: "a boolean",
    str: "a string",
    Integer: "a number",
    Real: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def field_converter(field: pa.Field, where: str) -> Convert | None:
    """As `scalar_converter`, for a field with a mark of `json_dialect` or of a form; None if it has none."""
    scale, unit = base64_scale(field), unit_of(field)
    if form := form_of(field):
        return _in_form(form, where, unit)
    if scale is not None:
        return _base64_decimal(field.type, scale, where)
    return _timestamp(type_name(field.type), where, unit) if unit != "ms" else None


def scalar_converter(kind: pa.DataType, where: str) -> Convert:
    """A function from a parsed JSON value (not null) to what `pa.array` accepts for the type; it raises Refused.

    Args:
        where: the column, for messages.

    Raises:
        ConfigurationError: JSON cannot represent the type.
    """
    if pa.types.is_decimal128(kind):
        return _decimal(kind, where)
    name = type_name(kind)
    if name not in _SCALARS:
        raise ConfigurationError(f"JSON cannot carry the type {name}", where=where, remedy="declare another type")
    return _SCALARS[name](where)


def mismatch(where: str, expected: str, value: Any) -> Refused:
    if value is None:
        return Refused("missing" if where != "the record" else "type", f"{where}: expected {expected}, found null")
    return Refused("type", f"{where}: expected {expected}, found {_FOUND[type(value)]}")


def unfit(where: str, expected: str) -> Refused:
    """The error of a number that is too large, or has too many digits."""
    return Refused("range", f"{where}: expected {expected}, found a number that does not fit")


def _exactly(python_type: type, expected: str, where: str) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not python_type:
            raise mismatch(where, expected, value)
        return value

    return convert


def _integer(low: int, high: int, expected: str, where: str) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        if type(value) is Integer:
            number = int(value) if len(value) <= 20 else high + 1
        elif type(value) is Real:
            number = whole(value, where, expected)
        else:
            raise mismatch(where, expected, value)
        if not low <= number <= high:
            raise unfit(where, expected)
        return number

    return convert


def whole(text: str, where: str, expected: str) -> int:
    """The whole number of a JSON number with a fraction or an exponent; raises Refused."""
    try:
        number = Decimal(text)
    except InvalidOperation:  # an exponent of more than 18 digits
        raise unfit(where, expected) from None
    if not number:
        return 0
    if number.adjusted() > 20:
        raise unfit(where, expected)
    if number.adjusted() < 0 or number != number.to_integral_value():
        raise Refused("type", f"{where}: expected {expected}, found a number with a fraction")
    return int(number)


def single(value: float) -> float:
    """The nearest four-byte float; raises OverflowError."""
    found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return found


def floating(
    expected: str, where: str, nearest: Callable[[float], float] = float, numbers: tuple[type, ...] = (Integer, Real)
) -> Callable[[Any], float]:
    """The conversion of a number of JSON to a float.

    Args:
        nearest: to the nearest float of the type; may raise OverflowError.
        numbers: the types of numbers that `parse_json` returns.
    """

    def convert(value: Any) -> float:
        if type(value) not in numbers:
            return non_finite(value, expected, where)
        try:
            number = nearest(float(value))
        except OverflowError:  # also a whole number of more than 308 digits
            raise unfit(where, expected) from None
        if math.isinf(number):
            raise unfit(where, expected)
        return number

    return convert


def non_finite(value: Any, expected: str, where: str) -> float:
    """The number for a text of `NON_FINITE`; raises Refused for any other value."""
    if type(value) is not str or value not in NON_FINITE:
        raise mismatch(where, expected, value)
    return NON_FINITE[value]


def _decimal(kind: pa.Decimal128Type, where: str) -> Convert:
    expected = type_name(kind)

    def convert(value: Any) -> Decimal:
        if not isinstance(value, str):
            raise mismatch(where, expected, value)
        if type(value) is str and not NUMERIC.fullmatch(value):
            raise Refused("type", f"{where}: expected {expected}, found a string that is no number")
        try:
            number = Decimal(value)
        except InvalidOperation:
            raise unfit(where, expected) from None
        return exact_decimal(number, kind, where)

    return convert


def _base64_decimal(kind: pa.Decimal128Type, scale: int, where: str) -> Convert:
    """Converts text that is the base64 of unscaled bytes; numbers as numbers."""
    number, expected = _decimal(kind, where), type_name(kind)

    def convert(value: Any) -> Decimal:
        if type(value) is not str:
            found: Decimal = number(value)
            return found
        try:
            return exact_decimal(unscaled(base64_bytes(value), scale), kind, where)
        except ValueError:
            raise Refused("type", f"{where}: expected {expected} in base64, found another string") from None

    return convert


# Decimal's own context would round to 28 digits.
_WIDE = Context(prec=10_000, Emax=999_999, Emin=-999_999)


def unscaled(raw: bytes, scale: int) -> Decimal:
    """The decimal of this scale whose unscaled value is in two's complement, big-endian."""
    return _WIDE.scaleb(Decimal(int.from_bytes(raw, "big", signed=True)), -scale)


def exact_decimal(number: Decimal, kind: pa.Decimal128Type, where: str) -> Decimal:
    """The number without trailing zeros, if it fits the type exactly; raises Refused otherwise, also for NaN."""
    if not number:
        return Decimal(0)
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):  # NaN or infinity
        raise unfit(where, type_name(kind))
    kept = len(digits)
    while digits[kept - 1] == 0:
        kept -= 1
    exponent += len(digits) - kept
    if number.adjusted() >= kind.precision - kind.scale or exponent < -kind.scale:
        raise unfit(where, type_name(kind))
    return Decimal((sign, digits[:kept], exponent))


def base64_bytes(text: str) -> bytes:
    """The bytes of a base64 string (standard alphabet, padded); raises ValueError if it is not one."""
    return binascii.a2b_base64(text, strict_mode=True)


def base64_value(text: str, where: str) -> bytes:
    """The same; raises Refused."""
    try:
        return base64_bytes(text)
    except ValueError:
        raise Refused("type", f"{where}: expected binary, found a string that is no base64") from None


def _binary(where: str) -> Convert:
    def convert(value: Any) -> bytes:
        if type(value) is not str:
            raise mismatch(where, "binary", value)
        return base64_value(value, where)

    return convert


def _date(where: str) -> Convert:
    days = _integer(FIRST_DAY, LAST_DAY, "date", where)

    def convert(value: Any) -> int:
        return text_to_date(value, where) if type(value) is str else days(value)

    return convert


def _timestamp(expected: str, where: str, unit: str = "ms") -> Convert:
    multiply, divide = UNITS[unit]
    low, high = (bound * divide // multiply for bound in (FIRST_MICROSECOND, LAST_MICROSECOND))
    ticks = _integer(low, high, expected, where)

    def convert(value: Any) -> int:
        if type(value) is not str:
            return ticks(value) * multiply // divide
        return text_to_microseconds(value, expected, where)

    return convert


def _in_form(form: str, where: str, unit: str) -> Convert:
    of_text = in_form(form, where)
    if form not in ("time", "uuid"):
        read = _binary(where)
        return lambda value: of_text(read(value))
    if form == "uuid":
        text = _exactly(str, form, where)
        return lambda value: of_text(text(value))
    whole_number, of_number = _integer(-(2**63), 2**63 - 1, form, where), time_of_number(unit, where)
    return lambda value: of_text(value) if type(value) is str else of_number(whole_number(value))


_SCALARS: dict[str, Callable[[str], Convert]] = {
    "boolean": partial(_exactly, bool, "boolean"),
    "int": partial(_integer, -(2**31), 2**31 - 1, "int"),
    "long": partial(_integer, -(2**63), 2**63 - 1, "long"),
    "float": partial(floating, "float", nearest=single),
    "double": partial(floating, "double"),
    "string": partial(_exactly, str, "string"),
    "binary": _binary,
    "date": _date,
    "timestamp": partial(_timestamp, "timestamp"),
    "timestamp_ntz": partial(_timestamp, "timestamp_ntz"),
}
