"""Proposes columns for plain JSON from a sample of values: for each field the first type that all values fit.

The decoder's own conversions (`jobs.decode.json_values`) decide whether a value fits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from jobs.decode.base import Refused
from jobs.decode.json_values import Integer, Real, scalar_converter
from jobs.schema.types import as_text, type_name
from jobs.schema.wire import INSTANT, WALL_CLOCK

_ZONE = re.compile(r"([Zz]|[+-]\d\d(:?\d\d)?)$")
# Texts that can become a decimal without loss; not `007`, which is probably an identifier.
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?", re.ASCII)
# Numbers that are milliseconds in these years are proposed as times; others are probably counters and ids.
_FIRST, _LAST = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1000 for year in (2000, 2100))
_UNITS = {"seconds": 1000, "microseconds": 1 / 1000, "nanoseconds": 1 / 1_000_000}
_TIME_NAME = re.compile(r"time|date|stamp|(^|_)(ts|at|epoch)$", re.IGNORECASE)
_KINDS = {bool: "boolean", str: "string", Integer: "number", Real: "number"}


@dataclass
class FieldValues:
    """The values of a sample in one field, without nulls.

    Attributes:
        scalars: the values that are neither object nor array, numbers as text.
        fields: of the objects; `element`: of the arrays.
    """

    scalars: list[Any] = field(default_factory=list)
    objects: int = 0
    arrays: int = 0
    fields: dict[str, FieldValues] = field(default_factory=dict)
    element: FieldValues | None = None

    def add(self, value: Any) -> None:
        if isinstance(value, dict):
            self.objects += 1
            for name, inner in value.items():
                self.fields.setdefault(name, FieldValues()).add(inner)
        elif isinstance(value, list):
            self.arrays += 1
            self.element = self.element or FieldValues()
            for inner in value:
                self.element.add(inner)
        elif value is not None:
            self.scalars.append(value)

    @property
    def count(self) -> int:
        return self.objects + self.arrays + len(self.scalars)

    def kinds(self) -> str:
        """The kinds of the values, the most frequent first."""
        found = Counter(_KINDS[type(value)] for value in self.scalars)
        found.update({"object": self.objects, "array": self.arrays})
        return ", ".join(f"{count} × {name}" for name, count in found.most_common() if count)


def infer_json(samples: Iterable[Any]) -> tuple[list[pa.Field], list[str]]:
    """Columns of JSON objects from `parse_json`, all optional, and remarks about what is unclear."""
    values = FieldValues()
    for sample in samples:
        values.add(sample)
    remarks: list[str] = []
    return _fields(values, "", remarks), remarks


def _fields(values: FieldValues, path: str, remarks: list[str]) -> list[pa.Field]:
    return [_field(name, inner, f"{path}.{name}" if path else name, remarks) for name, inner in values.fields.items()]


def _field(name: str, values: FieldValues, path: str, remarks: list[str]) -> pa.Field:
    """A field of the first type that all its values fit; of `text`, which takes every value, where no other does."""
    if not values.count:
        remarks.append(f"{path}: only nulls, taken as string")
        return pa.field(name, pa.string())
    scalar, fitting = _scalar(values.scalars)
    if (most := max(values.objects, values.arrays, fitting)) < values.count:
        other = "an object" if values.objects == most else "an array" if values.arrays == most else type_name(scalar)
        remarks.append(
            f"{path}: {most} of {values.count} values are {other} ({values.kinds()}), so taken as text; if the others "
            "are mistakes, declare another type: they become dead letters"
        )
        return as_text(pa.field(name, pa.string()))
    if values.objects:
        return pa.field(name, _object(values, path, remarks))
    if values.element:
        return pa.field(name, pa.list_(_field("element", values.element, f"{path}.element", remarks)))
    remarks += _scalar_remarks(values.scalars, scalar, path)
    return pa.field(name, scalar)


def _object(values: FieldValues, path: str, remarks: list[str]) -> pa.DataType:
    fields = _fields(values, path, remarks)
    if not fields:
        remarks.append(f"{path}: only empty objects, taken as map<string,string>")
    return pa.struct(fields) if fields else pa.map_(pa.string(), pa.string())


def _scalar(values: Sequence[Any]) -> tuple[pa.DataType, int]:
    """The first type that all values fit, else the one that most fit; and the number of values that fit."""
    best: tuple[pa.DataType, int] = (pa.string(), 0)
    for kind, may_be in _candidates(values):
        fitting = _fitting(values, kind, may_be)
        if fitting > best[1]:
            best = kind, fitting
    return best


def _candidates(values: Sequence[Any]) -> Iterable[tuple[pa.DataType, Callable[[Any], bool]]]:
    """Types in order of preference, each with a condition on values besides that the decoder accepts them."""
    numbers: list[str] = [value for value in values if type(value) in (Integer, Real)]
    yield pa.bool_(), _any
    yield pa.date32(), _is_text
    yield INSTANT, lambda value: bool(_ZONE.search(value[10:])) if _is_text(value) else _is_time(value)
    yield WALL_CLOCK, _is_text
    yield pa.int64(), _any
    yield pa.decimal128(38, 0), lambda value: type(value) is Integer
    texts = [value for value in values if _is_text(value) and _NUMBER.fullmatch(value)]
    if texts and (numbers or any("." in text for text in texts)):
        yield _decimal([*numbers, *texts]), lambda value: not _is_text(value) or bool(_NUMBER.fullmatch(value))
    yield pa.float64(), _any
    yield pa.string(), _any


def _fitting(values: Iterable[Any], kind: pa.DataType, may_be: Callable[[Any], bool]) -> int:
    convert, fitting = scalar_converter(kind, ""), 0
    for value in values:
        try:
            if type(value) is not bool or pa.types.is_boolean(kind):
                fitting += may_be(value) and convert(value) is not None
        except Refused:
            continue
    return fitting


def _any(_value: Any) -> bool:
    return True


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_time(value: Any) -> bool:
    return type(value) is Integer and len(value) < 20 and _FIRST <= int(value) < _LAST


def _decimal(numbers: Iterable[str]) -> pa.DataType:
    """A decimal for these numbers: of 18 digits if that leaves room for three more before the point, else of 38."""
    parts = [text.lstrip("-").partition(".") for text in numbers if _NUMBER.fullmatch(text)]
    whole, scale = max(len(part[0]) for part in parts), max(len(part[2]) for part in parts)
    return pa.decimal128(18 if whole + 3 + scale <= 18 else 38, min(scale, 38))


def _scalar_remarks(values: Sequence[Any], kind: pa.DataType, path: str) -> list[str]:
    """What a person should check, because the values alone do not show what they mean."""
    found = []
    numbers = [int(value) for value in values if type(value) is Integer and len(value) < 20]
    if kind == INSTANT and numbers:
        found.append(f"{path}: numbers that are milliseconds of 2000 to 2100, taken as timestamp; else write long")
    if pa.types.is_decimal(kind) and kind.scale:
        found.append(f"{path}: texts that are numbers, taken as {type_name(kind)}; else write string")
    if kind == pa.int64() and numbers and _TIME_NAME.search(path):
        for unit, factor in _UNITS.items():
            if all(_FIRST <= number * factor < _LAST for number in numbers):
                text = "`timestamp` reads milliseconds, or what `time_unit` (of an envelope: `timestamps`) says"
                found.append(f"{path}: maybe a time in {unit}; {text}")
    return found
