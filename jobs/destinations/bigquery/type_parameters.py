"""What types with parameters, as STRING(50) and NUMERIC(10, 2), leave of a column of a table that exists. Pure.

A text or a number for which a column has no room stops a whole statement, and digits after the point for which it has
none are rounded. So declared decimals have to fit, and other values are judged row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from jobs.destinations.bigquery.columns import Column
from jobs.destinations.bigquery.field import AnyField, Field, by_name
from jobs.destinations.limits import Limits, Mask, Range, flawed_parts, mask

_TOO_LONG = "a text or bytes longer than the column's type"
_DIGITS = "a number with more digits than the column's type"
# Digits after the point of a declared decimal, which has 38, for a column that has more than 38.
_HALF = 19


def digits(field: AnyField) -> tuple[int, int] | None:
    """Precision and scale; None: all that the type has."""
    return None if field.precision is None else (field.precision, field.scale or 0)


def shown(field: AnyField) -> str:
    """The type as BigQuery writes it."""
    parameters = digits(field) or ((field.max_length,) if field.max_length else ())
    return f"{field.field_type}({', '.join(map(str, parameters))})" if parameters else field.field_type


def declared_digits(field: AnyField) -> pa.DataType | None:
    """The widest declared decimal that fits; None: the field has all digits of its type."""
    if (found := digits(field)) is None:
        return None
    precision, scale = found
    if precision <= 38:
        return pa.decimal128(precision, scale)
    whole = min(precision - scale, 38 - min(scale, _HALF))
    return pa.decimal128(38, min(scale, 38 - whole))


def has_digits(field: AnyField, declared: tuple[int, int]) -> bool:
    """Whether all values of a declared decimal (precision, scale) fit."""
    precision, scale = digits(field) or declared
    return declared[1] <= scale and declared[0] - declared[1] <= precision - scale


def limited(limits: Limits, column: Column, present: Sequence[AnyField]) -> Limits:
    """What a column holds, in a table of these fields."""
    field = by_name(present).get(column.name.lower())
    found = digits(field) if field else None
    if found is None:
        if field is None or not _has_lengths(field):
            return limits
        too_long = partial(_too_long, wanted=column.field, field=Field.of(field))
        return replace(limits, checks=(*limits.checks, (_TOO_LONG, too_long)))
    declared = (column.conversion or "").partition("_to_")[0]
    if declared in ("int", "long"):
        most = 10 ** (found[0] - found[1]) - 1
        return replace(limits, ranges={"integer": Range(-most, most)}, outside=_DIGITS)
    if declared == "string":
        return replace(limits, checks=(*limits.checks, (_DIGITS, partial(_too_many_digits, precision_and_scale=found))))
    # A declared decimal fits: `plan_changes` has seen to it.
    return limits


def is_limited(column: Column, present: Sequence[AnyField]) -> bool:
    """Whether rows have to be judged by what this column has room for."""
    return limited(Limits(), column, present) != Limits()


def scale_of(text: str) -> int:
    """How many digits after the point the number needs; 0 if the text is not a number."""
    try:
        _, found, exponent = Decimal(text).as_tuple()
    except InvalidOperation:
        return 0
    if not any(found) or not isinstance(exponent, int):
        return 0
    zeros = next(n for n, digit in enumerate(reversed(found)) if digit)
    return -exponent - zeros


def _has_lengths(field: AnyField) -> bool:
    return bool(field.max_length or any(map(_has_lengths, field.fields)))


def _too_long(values: pa.Array, wanted: Field, field: AnyField | None) -> Mask | None:
    """Rows with a text or bytes for which the column, or a part of it, has no room."""
    if field is None or not _has_lengths(field):
        return None
    kind = values.type
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        parts = by_name(field.fields)
        inside = [partial(_too_long, wanted=part, field=parts.get(part.name.lower())) for part in wanted.fields]
        return flawed_parts(values, inside)
    if pa.types.is_nested(kind):
        return flawed_parts(values, [partial(_too_long, wanted=wanted, field=field)])
    if not field.max_length:
        return None
    length = pc.utf8_length if pa.types.is_string(kind) or pa.types.is_large_string(kind) else pc.binary_length
    return mask(pc.greater(length(values), field.max_length))


def _too_many_digits(texts: pa.Array, precision_and_scale: tuple[int, int]) -> Mask:
    """Texts of numbers for which the column has no room."""
    known = pc.unique(texts.drop_null()).to_pylist()
    refused = [text for text in known if not _fits(text, *precision_and_scale)]
    return mask(pc.is_in(texts, value_set=pa.array(refused, texts.type)))


def _fits(text: str, precision: int, scale: int) -> bool:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return True  # no number: BigQuery is asked about it
    # `abs` would round to 28 digits.
    return not number.is_finite() or (number.copy_abs() < 10 ** (precision - scale) and scale_of(text) <= scale)
