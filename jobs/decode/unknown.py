"""Fields of records that have no column: what a decoder does about them, and how it finds them.

A field without a value counts as absent: if it is null or empty, or contains only such fields.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal

import pyarrow as pa

from jobs.decode.base import Refused
from jobs.decode.json_values import NON_FINITE, Exact, Integer, Real
from jobs.schema.found_fields import Excluded, FoundField, FoundFields, Path, common_type, known_type, shown, struct_of
from jobs.schema.types import inside

Rest = Callable[[Any], Any]
"""From a parsed value to its part that has no column, in the same shape; None if there is none."""

_MOST_SHOWN = 3
LARGEST_WHOLE = 2**63


@dataclass(frozen=True)
class Watch:
    """What to do about fields that have no column.

    Attributes:
        then: report: the fields are reported, and the record becomes a row without them; refuse: the record is bad;
            rescue: the record becomes a row, with the fields as JSON in `column`.
        column: the column for `rescue`, which is not filled from a field of records.
        within: watch only inside these fields of the record (the row in an envelope); empty: the whole record.
        passing: fields whose names begin with this belong to the envelope and are ignored.
        reasons: why a field cannot become a column, by its name, if known.
        widens: paths of fields whose columns follow the records: values wider than the column are reported too.
        excluded: fields (of the row in an envelope) that count as absent.
    """

    then: Literal["report", "refuse", "rescue"] = "report"
    column: str = ""
    within: tuple[str, ...] = ()
    passing: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)
    widens: frozenset[Path] = frozenset()
    excluded: Excluded = field(default_factory=Excluded)

    def observes(self, path: Path) -> bool:
        """Whether a field at this path of the record is to be watched."""
        if self.within:
            return len(path) > 1 and path[0] in self.within
        return not (self.passing and path[0].startswith(self.passing))

    def rest(self, kind: pa.DataType, ignore_case: bool = False) -> Rest | None:
        """Finds such fields in records of this type; None if they cannot have any."""
        if not pa.types.is_struct(kind):
            return None
        known = self.without_column(kind)
        if self.within:
            known = pa.struct([f for f in known if f.name in self.within])
        rest = _struct_rest(known, ignore_case, self.observes)
        if not self.excluded:
            return rest
        return lambda value: pruned(rest(value), self.excluded, outside=1 if self.within else 0)

    def without_column(self, kind: pa.DataType) -> pa.DataType:
        """The record's type without the column for rescued fields, which is not a field of records."""
        if not (self.column and pa.types.is_struct(kind)):
            return kind
        if not self.within:
            return _without(kind, self.column)
        return pa.struct([f.with_type(_without(f.type, self.column)) if f.name in self.within else f for f in kind])

    def apply(self, rest: Any, value: dict[str, Any], found: Finding) -> dict[str, Any]:
        """The converted record after handling its unknown fields. Raises Refused if they make it a bad record."""
        if self.then == "report":
            found.add(rest)
        elif self.then == "refuse":
            raise Refused("unknown", self.refusal(rest))
        elif self.within:
            for name, part in rest.items():
                value[name][self.column] = json_text(part)
        else:
            value[self.column] = json_text(rest)
        return value

    def refusal(self, rest: Any) -> str:
        """The error of a record with these unknown fields."""
        names = [shown(path[1:] if self.within else path) for path, _ in leaves(rest)]
        some = list(dict.fromkeys(names))[:_MOST_SHOWN]
        text = f"no column takes the field{'s' if len(some) > 1 else ''} {', '.join(some)}"
        known = [self.reasons[name] for name in some if name in self.reasons]
        return f"{text}: {'; '.join(known)}" if known else text


class Finding:
    """The fields that were reported while an array was decoded one record at a time."""

    def __init__(self) -> None:
        self._types: dict[Path, pa.DataType] = {}
        self._records = Counter[Path]()

    def add(self, rest: Any) -> None:
        for path, value in leaves(rest):
            self._records[path] += 1
            self._types[path] = common_type(self._types.get(path, pa.null()), type_of(value))

    @property
    def fields(self) -> FoundFields:
        found = FoundFields()
        for path, records in self._records.items():
            kind = known_type(self._types[path])
            if kind is not None:
                found += FoundFields({path: FoundField(kind, records)})
        return found


def leaves(rest: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The outermost unknown fields of a rest, with their paths."""
    if isinstance(rest, StructRest):
        for name, part in rest.items():
            yield from leaves(part, (*path, rest.step or name))
    elif isinstance(rest, ListRest):
        for part in rest:
            if part is not None:
                yield from leaves(part, (*path, rest.step))
    else:
        yield path, rest


def pruned(rest: Any, excluded: Excluded, outside: int = 0, path: Path = ()) -> Any:
    """A rest without these fields; None if there are no others.

    Args:
        outside: so many names at the beginning of paths in the rest do not belong to those of `excluded`.
    """
    if isinstance(rest, dict):
        parts = {}
        for name, part in rest.items():
            here = (*path, getattr(rest, "step", "") or name)
            kept = None if here[outside:] in excluded else pruned(part, excluded, outside, here)
            if holds_values(kept):
                parts[name] = kept
        return type(rest)(parts) if parts else None
    if isinstance(rest, list):
        items = [pruned(part, excluded, outside, (*path, "element")) for part in rest]
        return type(rest)(items) if any(map(holds_values, items)) else None
    return rest


class StructRest(dict[str, Any]):
    """The rest of a struct that is a column."""

    step = ""


class MapRest(StructRest):
    """The rest of each value of a map, by its keys, which are not field names."""

    step = "value"


class ListRest(list[Any]):
    """The rest of each element of a list."""

    step = "element"


def holds_values(value: Any) -> bool:
    """Whether a parsed value contains anything but nulls."""
    if isinstance(value, dict | list):
        return any(map(holds_values, value.values() if isinstance(value, dict) else value))
    return value is not None


def type_of(value: Any) -> pa.DataType:
    """The type of a column for a parsed value; unknown (null) for nulls and empty values."""
    if isinstance(value, dict):
        return struct_of({name: type_of(inner) for name, inner in value.items()})
    if isinstance(value, list):
        return pa.list_(pa.field("element", reduce(common_type, map(type_of, value), pa.null())))
    return _TYPES.get(type(value), _number_type)(value)


def _number_type(value: Any) -> pa.DataType:
    """The type for a number; from 2**63 on `text`, which keeps all digits, since Arrow's reader loses them."""
    if isinstance(value, int):
        return pa.int64() if -LARGEST_WHOLE <= value < LARGEST_WHOLE else pa.string()
    return pa.float64() if isinstance(value, float) and abs(value) < LARGEST_WHOLE else pa.string()


_TYPES: dict[type, Callable[[Any], pa.DataType]] = {
    type(None): lambda _: pa.null(),
    bool: lambda _: pa.bool_(),
    Integer: lambda value: _number_type(int(value) if len(value) <= 20 else 2**64),
    Real: lambda value: _number_type(float(value)),
    bytes: lambda _: pa.binary(),
}


def _rest(kind: pa.DataType, ignore_case: bool) -> Rest | None:
    if pa.types.is_struct(kind):
        return _struct_rest(kind, ignore_case)
    if not (pa.types.is_list(kind) or pa.types.is_map(kind)):
        return None
    (items,) = inside(kind)
    rest = _rest(items.type, ignore_case)
    return rest and (_list_rest(rest) if pa.types.is_list(kind) else _map_rest(rest))


def _without(kind: pa.DataType, column: str) -> pa.DataType:
    return pa.struct([f for f in kind if f.name != column]) if pa.types.is_struct(kind) else kind


def _struct_rest(kind: pa.StructType, ignore_case: bool, observes: Callable[[Path], bool] = lambda _: True) -> Rest:
    names = {f.name.lower() if ignore_case else f.name for f in kind}
    nested = {f.name: rest for f in kind if (rest := _rest(f.type, ignore_case))}

    def of_struct(value: Any) -> Any:
        if type(value) is not dict:
            return None
        found = StructRest()
        if not value.keys() <= names:
            for name, inner in value.items():
                unknown = (name.lower() if ignore_case else name) not in names
                if unknown and observes((name,)) and holds_values(inner):
                    found[name] = inner
        if nested and ignore_case:
            value = {name.lower(): inner for name, inner in value.items()}
        for name, rest in nested.items():
            inner = value.get(name.lower() if ignore_case else name)
            part = None if inner is None else rest(inner)
            if part is not None:
                found[name] = part
        return found or None

    return of_struct


def _list_rest(rest: Rest) -> Rest:
    def of_list(value: Any) -> Any:
        if type(value) is not list:
            return None
        parts = ListRest(None if item is None else rest(item) for item in value)
        return parts if any(part is not None for part in parts) else None

    return of_list


def _map_rest(rest: Rest) -> Rest:
    def of_map(value: Any) -> Any:
        pairs = value.items() if isinstance(value, dict) else value
        parts = {str(name): rest(item) for name, item in pairs if item is not None}
        return MapRest((name, part) for name, part in parts.items() if part is not None) or None

    return of_map


def json_text(value: Any) -> str:
    """A parsed value as JSON, each number with its own digits; NaN and the infinities, which JSON lacks, as text."""
    if type(value) in (Integer, Real):
        return str(value)
    if isinstance(value, Exact):
        return value.text
    if isinstance(value, dict):
        inside = (f"{json.dumps(str(name), ensure_ascii=False)}:{json_text(inner)}" for name, inner in value.items())
        return "{" + ",".join(inside) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(json_text, value)) + "]"
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    found = json.dumps(value, ensure_ascii=False, default=str)
    return f'"{found}"' if found in NON_FINITE else found


def text_of(value: Any) -> str:
    """A parsed value for a column of type `text`: text and NaN as they are, anything else as JSON."""
    if type(value) is str:
        return str(value)
    return json.dumps(value) if type(value) is float else json_text(value)
