"""Columns proposed for a topic, from what its records say of themselves or, for plain JSON, from a sample of values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from jobs.decode.json_values import text_to_date, text_to_microseconds
from jobs.schema.wire import INSTANT, WALL_CLOCK

_ZONE = re.compile(r"([Zz]|[+-]\d\d(:?\d\d)?)$")
_LONG = 2**63


@dataclass
class Seen:
    """What a sample has at one place.

    Attributes:
        kinds: how often which kind of value.
        fields: of objects; `element`: of arrays.
    """

    kinds: dict[str, int] = field(default_factory=dict)
    fields: dict[str, Seen] = field(default_factory=dict)
    element: Seen | None = None

    def add(self, value: Any) -> None:
        kind = _kind(value)
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if isinstance(value, dict):
            for name, inner in value.items():
                self.fields.setdefault(name, Seen()).add(inner)
        elif isinstance(value, list):
            self.element = self.element or Seen()
            for inner in value:
                self.element.add(inner)


def infer_json(samples: Iterable[Any]) -> tuple[list[pa.Field], list[str]]:
    """Columns of parsed JSON objects, all of them optional, and remarks on what could not be told."""
    seen = Seen()
    for sample in samples:
        seen.add(sample)
    remarks: list[str] = []
    others = sum(count for kind, count in seen.kinds.items() if kind != "object")
    if others:
        remarks.append(f"{others} records are no objects: they would be dead letters")
    return _fields(seen, "", remarks), remarks


def _fields(seen: Seen, path: str, remarks: list[str]) -> list[pa.Field]:
    found = []
    for name, inner in seen.fields.items():
        where = f"{path}.{name}" if path else name
        kind = _type(inner, where, remarks)
        if kind is not None:
            found.append(pa.field(name, kind))
    return found


def _type(seen: Seen, path: str, remarks: list[str]) -> pa.DataType | None:
    kinds = {kind for kind in seen.kinds if kind != "null"}
    if not kinds:
        remarks.append(f"{path}: only nulls, taken as string")
        return pa.string()
    if kinds == {"object"}:
        fields = _fields(seen, path, remarks)
        if not fields:
            remarks.append(f"{path}: only empty objects, taken as map<string,string>")
        return pa.struct(fields) if fields else pa.map_(pa.string(), pa.string())
    if kinds == {"array"}:
        element = _type(seen.element or Seen(), f"{path}.element", remarks)
        return pa.list_(pa.field("element", element)) if element is not None else None
    for kinds_of, kind in _SCALARS:
        if kinds <= kinds_of:
            return kind
    remarks.append(f"{path}: left out, it has values of several kinds ({', '.join(sorted(kinds))})")
    return None


_SCALARS: Sequence[tuple[set[str], pa.DataType]] = [
    ({"boolean"}, pa.bool_()),
    ({"long"}, pa.int64()),
    ({"long", "large"}, pa.decimal128(38, 0)),
    ({"long", "large", "double"}, pa.float64()),
    ({"date"}, pa.date32()),
    ({"timestamp"}, INSTANT),
    ({"timestamp_ntz"}, WALL_CLOCK),
    ({"string", "date", "timestamp", "timestamp_ntz"}, pa.string()),
]


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "long" if -_LONG <= value < _LONG else "large"
        case float():
            return "double"
        case str():
            return _text_kind(value)
    return "object" if isinstance(value, dict) else "array"


def _text_kind(text: str) -> str:
    if len(text) == 10 and _fits(text_to_date, text, ""):
        return "date"
    if len(text) >= 16 and text[:4].isdigit():
        kind = "timestamp" if _ZONE.search(text[10:]) else "timestamp_ntz"
        if _fits(text_to_microseconds, text, kind, ""):
            return kind
    return "string"


def _fits(read: Any, *arguments: Any) -> bool:
    from jobs.decode.base import Refused

    try:
        read(*arguments)
    except Refused:
        return False
    return True
