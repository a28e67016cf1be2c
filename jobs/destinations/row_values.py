"""Compares values of a destination table's rows, as its system returns them, with those of landed changes."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pyarrow as pa

from jobs.destinations.limits import Mask, brought_in_range
from jobs.destinations.refusal import LimitedColumn
from jobs.schema.python_values import python_values
from jobs.spec.columns import RowColumn
from jobs.spec.tables import OutOfRange


@dataclass(frozen=True)
class RowValues:
    """How the values of a table's rows are compared; travels to Spark's tasks.

    Spark compares most columns, in their declared types. Columns that are `compared_in_python` become texts that are
    equal if the values mean the same (`comparable`).

    Attributes:
        columns: of the table's rows, with their names in the table (`Kind.columns`).
        named_types: columns whose type in the table the pipeline file names, as they are declared.
        limited: what the columns can hold, if values may be adjusted (`out_of_range`).
        empty_is_null: the system does not distinguish an empty array from a null one.
    """

    empty_is_null: ClassVar[bool] = False

    columns: Sequence[RowColumn]
    named_types: Collection[str] = ()
    limited: Sequence[LimitedColumn] = ()
    out_of_range: OutOfRange = "refuse"

    @property
    def compared_in_python(self) -> list[RowColumn]:
        """Nested columns, those of `named_types`, and adjusted ones; never keys or coordinates, which identify rows."""
        values = [c for c in self.columns if c.path[0] == "value"]
        named = (*self.named_types, *self._fitted)
        return [c for c in values if pa.types.is_nested(c.type) or c.path[-1] in named or c.name in named]

    @property
    def schema(self) -> pa.Schema:
        """The schema of rows that were read (`as_read`)."""
        compared_in_python = {c.name for c in self.compared_in_python}
        return pa.schema([(c.name, pa.string() if c.name in compared_in_python else c.type) for c in self.columns])

    def as_read(self, rows: pa.Table) -> pa.Table:
        """Rows as the system returns them, converted to `schema`."""
        compared_in_python = {c.name for c in self.compared_in_python}
        made = [
            self._texts(c, python_values(rows[c.name])) if c.name in compared_in_python else rows[c.name].cast(c.type)
            for c in self.columns
        ]
        return pa.table(made, schema=self.schema)

    def differ(self, column: RowColumn, expected: pa.Array, found: pa.Array) -> Mask:
        """In which rows a column that is `compared_in_python` has another value than the landed changes make.

        Args:
            expected: in the landed type. found: texts of `as_read`, of the same rows.
        """
        if not len(expected):
            return np.zeros(0, bool)
        texts = self._texts(column, self.stored(column, self._adjusted_values(column, expected)))
        pairs = zip(texts.to_pylist(), found.to_pylist(), strict=True)
        return np.fromiter((one != other for one, other in pairs), bool, len(expected))

    def stored(self, column: RowColumn, values: pa.Array) -> Sequence[object]:
        """These values of a column that is `compared_in_python`, as the system returns them from a table."""
        del column
        return python_values(values)

    def compared_type(self, column: RowColumn) -> pa.DataType:
        """The declared type with the system's names. Like columns, nested fields that it lacks are not compared."""
        return column.type

    def _adjusted_values(self, column: RowColumn, values: pa.Array) -> pa.Array:
        """The values as a merge has adjusted them (`out_of_range`)."""
        limited = self._fitted.get(column.name)
        if limited is None or self.out_of_range == "refuse":
            return values
        return brought_in_range(values, limited.limits, self.out_of_range, limited.nullable)

    @property
    def _fitted(self) -> dict[str, LimitedColumn]:
        return {c.label: c for c in self.limited if self.out_of_range != "refuse" and c.may_be_adjusted}

    def _texts(self, column: RowColumn, values: Sequence[object]) -> pa.Array:
        kind = self.compared_type(column)
        return pa.array([comparable(declared_part(value, kind), self.empty_is_null) for value in values], pa.string())


def declared_part(value: object, kind: pa.DataType) -> object:
    """The value with the nested fields of a type only; those that it lacks are None."""
    if isinstance(value, dict) and pa.types.is_struct(kind):
        parts = {name.lower(): part for name, part in value.items()}
        return {f.name: declared_part(parts.get(f.name.lower()), f.type) for f in kind}
    if isinstance(value, list) and pa.types.is_list(kind):
        return [declared_part(part, kind.value_type) for part in value]
    if isinstance(value, list) and pa.types.is_map(kind):
        return [(key, declared_part(part, kind.item_type)) for key, part in value]
    return value


def comparable(value: object, empty_is_null: bool = False) -> str | None:
    """A text that is equal for values that mean the same: NaN is NaN, 1.0 is 1, maps have no order. None is None."""
    if value is None or (empty_is_null and isinstance(value, list) and not value):
        return None
    if isinstance(value, dict):
        return _braced(sorted(f"{name.lower()!r}: {comparable(part, empty_is_null)}" for name, part in value.items()))
    if isinstance(value, list | tuple):
        parts = [str(comparable(part, empty_is_null)) for part in value]
        # Arrow returns a map as its pairs.
        return _braced(sorted(parts) if value and isinstance(value[0], tuple) else parts)
    return _scalar(value)


def _scalar(value: object) -> str:
    if isinstance(value, int | float | Decimal):
        return str(Fraction(value)) if math.isfinite(value) else str(float(value))
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
    return repr(value)


def _braced(parts: Sequence[str]) -> str:
    return "{" + ", ".join(parts) + "}"
