"""Fields of records that have no column: their paths and types, and the number of records that have them. Pure.

Types that are found for one field are joined by one rule, in any order: the wider one wins, integers and other numbers
become ``double``, structs get the fields of both, and incompatible types become ``text``, which accepts any value.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from jobs.schema.types import inside, is_wider, number_type, with_inside

Path = tuple[str, ...]
"""Names from the record inwards; ``element`` for a list, ``value`` for a map."""

# A struct with more fields is probably a map whose keys are data.
MOST_IN_STRUCT = 100
# The most fields in a report; others are only counted, so that reports are small.
MOST_NAMED = 1000
# The most fields in a snapshot's summary, for the same reason.
MOST_COUNTED = 100


@dataclass(frozen=True)
class FoundField:
    """One field.

    Attributes:
        type: of a column that accepts all values that were seen, strings as ``text``; None if there is no such type.
        records: the number of records with a value in it; for an array's elements, the number of elements.
    """

    type: pa.DataType | None
    records: int

    def __add__(self, other: FoundField) -> FoundField:
        kind = common_type(self.type, other.type) if self.type is not None and other.type is not None else None
        return FoundField(kind, self.records + other.records)


@dataclass(frozen=True)
class FoundFields:
    """Fields by their paths.

    Attributes:
        more: the number of fields that are not kept by name, because there are too many.
    """

    by_path: Mapping[Path, FoundField] = field(default_factory=dict)
    more: int = 0

    def __bool__(self) -> bool:
        return bool(self.by_path)

    def __add__(self, other: FoundFields) -> FoundFields:
        if not other:
            return self
        found, more = dict(self.by_path), self.more + other.more
        for path, one in other.by_path.items():
            if path in found:
                found[path] = found[path] + one
            elif len(found) < MOST_NAMED:
                found[path] = one
            else:
                more += 1
        return FoundFields(found, more)

    def times(self, records: int) -> FoundFields:
        """The same fields with the numbers of records multiplied by `records`."""
        return replace(
            self, by_path={path: replace(one, records=one.records * records) for path, one in self.by_path.items()}
        )

    def beyond(self, counted: FoundFields) -> FoundFields:
        """The same fields, with the numbers of records without those that are counted already."""
        found = dict(self.by_path)
        for path in found.keys() & counted.by_path.keys():
            found[path] = replace(found[path], records=max(found[path].records - counted.by_path[path].records, 0))
        return FoundFields(found, max(self.more - counted.more, 0))

    @property
    def counts(self) -> dict[str, int]:
        """The number of records by field name, for people: of the most frequent fields, sorted."""
        frequent = sorted(self.by_path.items(), key=lambda found: (-found[1].records, found[0]))[:MOST_COUNTED]
        return {shown(path): one.records for path, one in sorted(frequent)}

    def within(self, root: str) -> FoundFields:
        """The fields inside this field of the record, with paths relative to it."""
        inner = {path[1:]: one for path, one in self.by_path.items() if len(path) > 1 and path[0] == root}
        return FoundFields(inner, self.more)


NOTHING_FOUND = FoundFields()


def shown(path: Path) -> str:
    """A path for messages."""
    return ".".join(path)


def field_paths(fields: Iterable[pa.Field], at: Path = ()) -> frozenset[Path]:
    """The paths of the fields, which are inside the one at this path, and of all nested ones."""
    outer = [((*at, one.name), one.type) for one in fields]
    return frozenset(path for path, _ in outer).union(*(field_paths(inside(kind), path) for path, kind in outer))


@dataclass(frozen=True)
class Excluded:
    """Fields that count as absent, with all inside them.

    Attributes:
        texts: their paths as texts, in which a dot leads inside or belongs to a field's own name: there are too many
            paths that a text can mean to name them all.
        paths: further ones.
    """

    texts: frozenset[str] = frozenset()
    paths: frozenset[Path] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.texts or self.paths)

    def __contains__(self, path: object) -> bool:
        return isinstance(path, tuple) and (shown(path) in self.texts or path in self.paths)

    def has_inside(self, path: Path) -> bool:
        """Whether one of `texts` is inside the field at this path."""
        return any(text.startswith(f"{shown(path)}.") for text in self.texts)


def without_paths(kind: pa.DataType, paths: Container[Path], at: Path = ()) -> pa.DataType | None:
    """The type without the parts at these paths; None if nothing is left."""
    if not pa.types.is_nested(kind):
        return kind
    parts = []
    for inner in inside(kind):
        here = (*at, inner.name)
        part = None if here in paths else without_paths(inner.type, paths, here)
        parts += [] if part is None else [inner.with_type(part)]
    return with_inside(kind, parts) if parts else None


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type of a column that accepts the values of both; ``text`` if no other type does."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if is_wider(one, other):
        return other
    if is_wider(other, one):
        return one
    return number_type({one, other}) or _common_nested(one, other) or pa.string()


def _common_nested(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {f.name: f.type for f in one}
        for f in other:
            fields[f.name] = common_type(fields[f.name], f.type) if f.name in fields else f.type
        return struct_of(fields)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(pa.field("element", common_type(one.value_type, other.value_type)))
    if pa.types.is_map(one) and pa.types.is_map(other) and one.key_type == other.key_type:
        return pa.map_(one.key_type, pa.field("value", common_type(one.item_type, other.item_type)))
    return None


def struct_of(fields: Mapping[str, pa.DataType]) -> pa.DataType:
    """A struct; ``text`` if it has so many fields that their names are probably data."""
    return pa.struct(list(fields.items())) if len(fields) <= MOST_IN_STRUCT else pa.string()


def known_type(kind: pa.DataType) -> pa.DataType | None:
    """The type without parts whose type is not known yet (only nulls, empty arrays); None if nothing is left."""
    if pa.types.is_null(kind):
        return None
    if not pa.types.is_nested(kind):
        return kind
    parts = [f.with_type(part) for f in inside(kind) if (part := known_type(f.type)) is not None]
    return with_inside(kind, parts) if parts else None
