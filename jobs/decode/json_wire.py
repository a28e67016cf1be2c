"""The types with which Arrow's JSON reader reads columns, and their conversion to the declared types.

Each conversion has the result of `json_strict`, or raises ArrowInvalid; then the records are decoded one by one. Where
Arrow's own conversions are more lenient, this module checks: years outside 1 to 9999, times without minutes, decimals
wider than declared, numbers too large for a float, null in a `not null` column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode import best_fit
from jobs.decode.columns.decimals import MOST_SCALE, fitting, unscaled
from jobs.decode.forms import all_in_form
from jobs.decode.json_dialect import base64_scale, is_best_fit, unit_of
from jobs.decode.json_values import base64_bytes
from jobs.decode.times import FIRST_DAY, FIRST_MICROSECOND, LAST_DAY, LAST_MICROSECOND, LAST_OF_DAY, UNITS
from jobs.schema.own_values import time_texts
from jobs.schema.types import form_of, inside, is_text, with_inside

_AFTER_MICROSECONDS = r"(:\d\d\.\d{6})\d+"
_DATE = r"^\d{4}-\d\d-\d\d"
_ZONE = r"([Zz]|[+-]\d\d(:?[0-5]\d)?)"
_TIME = rf"{_DATE}[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?"
# Holds all whole numbers, and up to nine digits after the point; more of them are refused.
_NUMBERS = pa.decimal128(29, 9)


class OneByOne(pa.ArrowInvalid):  # type: ignore[misc]
    """Some records have to be decoded one by one, and the others may be read together.

    Attributes:
        records: which they are.
    """

    def __init__(self, records: pa.Array) -> None:
        super().__init__("some values are not read together")
        self.records = records

    @classmethod
    def unless(cls, good: pa.Array) -> None:
        """Raises unless all values are good, or none is; a null counts as good."""
        bad = pc.fill_null(pc.invert(good), False)
        count = pc.sum(bad).as_py() or 0
        if 0 < count < len(bad):
            raise cls(bad)


def wire_fields(kind: pa.StructType, samples: list[Any]) -> list[pa.Field]:
    """The fields to read by Arrow: as declared, but times as strings or numbers, whichever the samples have."""
    records = [sample for sample in samples if isinstance(sample, dict)]
    return [pa.field(f.name, _wire_type(f, [record.get(f.name) for record in records])) for f in kind]


def with_points(wire: pa.Schema) -> pa.Schema:
    """The same fields, but whole numbers may have a point: producers write `1.0`, too."""
    return pa.schema([f.with_type(_with_points(f.type)) for f in wire])


def _with_points(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind):
        return _NUMBERS
    return with_inside(kind, [f.with_type(_with_points(f.type)) for f in inside(kind)])


def numbers_alone(fields: Iterable[pa.Field], wire: Iterable[pa.Field]) -> Iterator[str]:
    """Names of decimals that are read as numbers although their texts would be base64: Arrow would parse these."""
    for field, read in zip(fields, wire, strict=True):
        if base64_scale(field) is not None and not pa.types.is_string(read.type):
            yield field.name
        yield from numbers_alone(inside(field.type), inside(read.type))


def is_declared(kind: pa.DataType, path: Sequence[str]) -> bool:
    """Whether there is a column, or a field in one, at this path; `[]` are the elements of an array."""
    if not path:
        return True
    if pa.types.is_list(kind):
        return path[0] == "[]" and is_declared(kind.value_type, path[1:])
    return pa.types.is_struct(kind) and any(f.name == path[0] and is_declared(f.type, path[1:]) for f in kind)


def declared_columns(columns: list[pa.Array], kind: pa.StructType) -> tuple[pa.Array, pa.Array | None]:
    """The struct of columns that were read as `wire_fields`, and a mask of rows that lack a `not null` column."""
    fields = list(kind)
    lacking = [
        column.is_null() for column, f in zip(columns, fields, strict=True) if not f.nullable and column.null_count
    ]
    declared = [_declared(column, field) for column, field in zip(columns, fields, strict=True)]
    return pa.StructArray.from_arrays(declared, fields=fields), reduce(pc.or_, lacking) if lacking else None


def _wire_type(field: pa.Field, samples: list[Any]) -> pa.DataType:
    kind = field.type
    if pa.types.is_struct(kind):
        return pa.struct(wire_fields(kind, samples))
    if pa.types.is_list(kind):
        inner = [item for sample in samples if isinstance(sample, list) for item in sample]
        # `numbers_alone` distinguishes base64 by the name before it, which an element has not.
        in_text = base64_scale(kind.value_field) is not None
        return pa.list_(pa.field("element", pa.string() if in_text else _wire_type(kind.value_field, inner)))
    return _wire_scalar(field, samples)


def _wire_scalar(field: pa.Field, samples: list[Any]) -> pa.DataType:
    """The type to read; if values may be written in several ways, that of the samples."""

    def has(python_type: type) -> bool:
        return any(isinstance(sample, python_type) for sample in samples)

    kind = field.type
    if pa.types.is_temporal(kind) or form_of(field) == "time":
        return pa.int64() if has(int) else pa.string()
    if is_best_fit(field) and _may_be_in_text(kind) and has(str):
        return pa.string()
    if pa.types.is_binary(kind) or (base64_scale(field) is not None and has(str)):
        return pa.string()
    if is_text(field) and has(bool):
        return pa.bool_()
    if pa.types.is_decimal(kind):
        return _wide_decimal(kind)
    # Read as double and rounded to float, like the strict decoder; parsing the text as float may differ.
    return pa.float64() if pa.types.is_float32(kind) else kind


def _wide_decimal(kind: pa.Decimal128Type) -> pa.DataType:
    """The type to read decimals: of 256 bits where 128 may wrap around (`columns.decimals`)."""
    may_wrap = kind.precision + kind.scale > MOST_SCALE
    return pa.decimal256(kind.precision, kind.scale) if may_wrap else kind


def _may_be_in_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _declared(values: pa.Array, field: pa.Field) -> pa.Array:
    if pa.types.is_string(values.type) and _may_be_in_text(field.type):
        values = best_fit.in_text(values, field.type)
    if values.type == _NUMBERS and not pa.types.is_decimal(field.type):
        values = _whole(values, field.type)
    if form := form_of(field):
        return _in_form(values, field, form)
    for fits, convert in _CONVERSIONS:
        if fits(field.type):
            return convert(values, field)
    return values


def _declared_struct(values: pa.Array, declared_as: pa.Field) -> pa.Array:
    # A flattened child is null where its parent is. Undeclared fields come after the others.
    fields = list(declared_as.type)
    children = values.flatten()[: len(fields)]
    for child, field in zip(children, fields, strict=True):
        if not field.nullable and child.null_count > values.null_count:
            raise pa.ArrowInvalid("null in a field that is not null")
    declared = [_declared(child, field) for child, field in zip(children, fields, strict=True)]
    return pa.StructArray.from_arrays(declared, fields=fields, mask=values.is_null())


def _declared_list(values: pa.Array, field: pa.Field) -> pa.Array:
    kind = field.type
    if not kind.value_field.nullable and values.flatten().null_count:
        raise pa.ArrowInvalid("null in an array whose elements are not null")
    try:
        declared = _declared(values.values, kind.value_field)
    except OneByOne as some:
        raise pa.ArrowInvalid(str(some)) from None  # it tells elements apart, not records
    return pa.ListArray.from_arrays(values.offsets, declared, type=kind, mask=values.is_null())


def _whole(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Whole numbers that were read with a point."""
    values.validate(full=True)  # as of decimals
    wide = kind if pa.types.is_integer(kind) else pa.int64()
    known = np.iinfo(wide.to_pandas_dtype())
    low, high = (pa.scalar(Decimal(int(bound)), _NUMBERS) for bound in (known.min, known.max))
    in_range = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
    good = pc.and_(in_range, pc.equal(pc.round(values), values))
    OneByOne.unless(good)
    if not pc.all(good).as_py():
        raise pa.ArrowInvalid("numbers that are not whole")
    return pc.cast(values, wide)


def declared_time(values: pa.Array, kind: pa.DataType, unit: str = "ms") -> pa.Array:
    """Dates or timestamps from texts, or from days or numbers of this unit; raises ArrowInvalid."""
    ticks_type = pa.int32() if pa.types.is_date(kind) else pa.int64()
    low, high = (FIRST_DAY, LAST_DAY) if pa.types.is_date(kind) else (FIRST_MICROSECOND, LAST_MICROSECOND)
    if not pa.types.is_string(values.type):
        ticks = values if pa.types.is_date(kind) else microseconds(values, unit)
    else:
        try:
            ticks = pc.cast(_parsed(values, kind), ticks_type)
        except pa.ArrowInvalid:
            OneByOne.unless(pc.match_substring_regex(values, _form(kind)))
            raise
    return within(ticks, low, high).cast(ticks_type).cast(kind)


def within(values: pa.Array, low: int, high: int) -> pa.Array:
    """The values; raises ArrowInvalid if one is outside these bounds."""
    found = pc.min_max(values).as_py()
    if found["min"] is not None and not (low <= found["min"] and found["max"] <= high):
        raise pa.ArrowInvalid("a value out of range")
    return values


def _form(kind: pa.DataType) -> str:
    """A regular expression for texts of dates or times."""
    return f"{_DATE if pa.types.is_date(kind) else _TIME}{f'{_ZONE}?' if _has_zone(kind) else ''}$"


def _has_zone(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _parsed(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Dates, or times without the digits after microseconds, with which Arrow does not read them, and in UTC where a
    zone is left out."""
    try:
        return _cast(texts, kind)
    except pa.ArrowInvalid:
        if _has_zone(kind):
            has_zone = pc.match_substring_regex(texts, rf":\d\d(\.\d+)?{_ZONE}$")
            texts = pc.if_else(has_zone, texts, pc.binary_join_element_wise(texts, "Z", ""))
        return _cast(pc.replace_substring_regex(texts, _AFTER_MICROSECONDS, r"\1"), kind)


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        # Arrow reads times without minutes too: up to 19 characters with a zone, up to 13 without.
        shortest = pc.min(pc.binary_length(texts)).as_py()
        if shortest is not None and shortest < (20 if _has_zone(kind) else 16):
            raise pa.ArrowInvalid("a time that may have no minutes")
    return pc.cast(texts, kind)


def microseconds(values: pa.Array, unit: str) -> pa.Array:
    """Converts numbers of this unit to microseconds, rounding down."""
    multiply, divide = UNITS[unit]
    long = values.cast(pa.int64())
    if divide == 1:
        return long if multiply == 1 else pc.multiply_checked(long, multiply)
    cut = pc.divide(long, divide)
    below = pc.less(long, pc.multiply(cut, divide))
    return pc.subtract(cut, below.cast(pa.int64()))


def declared_binary(values: pa.Array) -> pa.Array:
    try:
        return pa.array([None if v is None else base64_bytes(v) for v in values.to_pylist()], pa.binary())
    except ValueError:
        raise pa.ArrowInvalid("a string that is no base64") from None


def _in_form(values: pa.Array, field: pa.Field, form: str) -> pa.Array:
    if pa.types.is_integer(values.type):
        return time_texts(within(microseconds(values, unit_of(field)), 0, LAST_OF_DAY).cast(pa.time64("us")))
    return all_in_form(declared_binary(values) if pa.types.is_binary(field.type) else values, form)


def _declared_decimal(values: pa.Array, field: pa.Field) -> pa.Array:
    scale = base64_scale(field)
    if scale is not None and pa.types.is_string(values.type):
        if not 0 <= scale <= MOST_SCALE:
            raise pa.ArrowInvalid("a scale that no decimal type has")
        return fitting(unscaled(declared_binary(values), scale), field.type)
    if values.type != field.type:
        return fitting(values, field.type)
    values.validate(full=True)  # Arrow checks the precision before it rescales, not after
    return values


def _finite(values: pa.Array) -> pa.Array:
    if pc.any(pc.invert(pc.is_finite(values))).as_py():
        raise pa.ArrowInvalid("a number that does not fit")
    return values


_CONVERSIONS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, pa.Field], pa.Array]]] = [
    (pa.types.is_struct, _declared_struct),
    (pa.types.is_list, _declared_list),
    (pa.types.is_temporal, lambda values, field: declared_time(values, field.type, unit_of(field))),
    (pa.types.is_binary, lambda values, _: declared_binary(values)),
    (pa.types.is_string, lambda values, _: values.cast(pa.string())),
    (pa.types.is_decimal128, _declared_decimal),
    (pa.types.is_floating, lambda values, field: _finite(pc.cast(_finite(values), field.type, safe=False))),
]
