"""Columns that have another name than their fields in records (`rename`). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

import pyarrow as pa

from jobs.schema.found_fields import FoundFields, Path
from jobs.schema.types import inside, with_inside

_NamesOf = Callable[[Path, str], tuple[str, str]]
"""From a field's path in records, and its name in a type, to its names in records and in the new type."""


@dataclass(frozen=True)
class Renaming:
    """Translates between fields of records and columns, in both directions.

    Attributes:
        columns: from a field's path in a record (``address.zip``, ``lines.element.nr``) to its name as a column.
    """

    columns: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _columns(self) -> dict[Path, str]:
        return {tuple(path.split(".")): column for path, column in self.columns.items()}

    @cached_property
    def fields(self) -> dict[Path, Path]:
        """From a column's path (its parents named as in records) to its field's path in a record."""
        return {(*path[:-1], column): path for path, column in self._columns.items()}

    @property
    def outer_fields(self) -> dict[str, str]:
        """The same of columns that are not inside others, by their names."""
        return {column: path[0] for path, column in self._columns.items() if len(path) == 1}

    def in_records(self, kind: pa.DataType) -> pa.DataType:
        """The type with the names of fields in records."""

        def names_of(path: Path, column: str) -> tuple[str, str]:
            name = self._field_in(path, column)[-1]
            return name, name

        return _mapped(kind, (), names_of)

    def as_columns(self, kind: pa.DataType, path: Path = ()) -> pa.DataType:
        """The type at this path of records, with the names of columns."""
        return _mapped(kind, path, lambda at, name: (name, self._columns.get((*at, name), name)))

    def column(self, path: Path) -> Path:
        """The column of a field."""
        return tuple(self._columns.get(path[: n + 1], step) for n, step in enumerate(path))

    def field(self, path: Path) -> Path:
        """The field of a column."""
        return reduce(self._field_in, path, ())

    def _field_in(self, path: Path, column: str) -> Path:
        """The field of a column inside the field at this path."""
        return self.fields.get((*path, column), (*path, column))

    def found(self, fields: FoundFields) -> FoundFields:
        """The fields found in records, with the names of columns."""
        if not (fields and self.columns):
            return fields
        named = {
            self.column(path): one if one.type is None else replace(one, type=self.as_columns(one.type, path))
            for path, one in fields.by_path.items()
        }
        return replace(fields, by_path=named)


def _mapped(kind: pa.DataType, path: Path, names_of: _NamesOf) -> pa.DataType:
    parts = []
    for f in inside(kind):
        in_records, name = names_of(path, f.name) if pa.types.is_struct(kind) else (f.name, f.name)
        parts.append(f.with_name(name).with_type(_mapped(f.type, (*path, in_records), names_of)))
    return with_inside(kind, parts)
