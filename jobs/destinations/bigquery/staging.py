"""Landed rows in the shape of the staging table, Arrow batch by Arrow batch. Pure, and without copying values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.destinations.bigquery.columns import ARROW_TYPES, Column
from jobs.destinations.bigquery.field import AnyField, Field
from jobs.destinations.bigquery.names import column_name

_SCALARS = {**ARROW_TYPES, "NUMERIC": pa.decimal128(38, 9), "BIGNUMERIC": pa.decimal256(76, 38)}


@dataclass(frozen=True)
class Stager:
    """Shapes batches of one select list into rows with the current schema of the staging table.

    Attributes:
        columns: the destination's columns, in the order of the select list.
        present: the staging table's schema; columns that are no longer declared are filled with nulls, or left out
            if they have a type that no declared column can have.
        sanitize: whether names of nested fields are sanitised, as the table's columns are.
    """

    columns: Sequence[Column]
    present: Sequence[AnyField]
    sanitize: bool

    def shape(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the staging table, as `sent_rows.py` writes them: without nulls in arrays."""
        deleted = pc.equal(batch.column("op"), "delete")
        arrays, fields = [], []
        for field in self.present:
            if field.name in ("key", "value"):
                parts = {c.name: batch.column(n) for n, c in enumerate(self.columns) if c.path[0] == field.name}
                array = self._struct(parts, field, len(batch), deleted if field.name == "value" else None)
            elif field.name not in batch.schema.names:
                # Only some pipeline files make it (`kept`, `orderBy`): the table has it from an earlier one.
                array = pa.nulls(len(batch), arrow_type(field))
            else:
                array = batch.column(field.name).cast(arrow_type(field))
            arrays.append(array)
            fields.append(pa.field(field.name, array.type, field.mode != "REQUIRED"))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def shaped(self, array: pa.Array, field: AnyField) -> pa.Array:
        """Values of one column, or of a part of it, as the staging table has them."""
        if field.mode == "REPEATED":
            return self._repeated(array, field)
        if field.field_type == "RECORD":
            names = [column_name(part.name, self.sanitize) for part in array.type]
            parts = {name: array.field(n) for n, name in enumerate(names) if name is not None}
            return self._struct(parts, field, len(array), array.is_null())
        if field.field_type in ("NUMERIC", "BIGNUMERIC"):
            return array
        return array.cast(ARROW_TYPES[field.field_type])

    def _struct(self, parts: Mapping[str, pa.Array], field: AnyField, rows: int, mask: pa.Array | None) -> pa.Array:
        """Parts go by name: landed and staged order may differ."""
        given, inner = {name.lower(): part for name, part in parts.items()}, _loaded(field.fields)
        children = [
            self.shaped(given[f.name.lower()], f) if f.name.lower() in given else pa.nulls(rows, arrow_type(f))
            for f in inner
        ]
        return pa.StructArray.from_arrays(children, [f.name for f in inner], mask=mask)

    def _repeated(self, array: pa.Array, field: AnyField) -> pa.Array:
        if pa.types.is_map(array.type):
            pairs = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
            array = pa.ListArray.from_arrays(_offsets(array), pairs, mask=array.is_null())
        elif array.flatten().null_count:
            array = _without_nulls(array)
        values = self.shaped(array.values, Field(field.name, field.field_type, fields=tuple(field.fields)))
        return pa.ListArray.from_arrays(_offsets(array), values, mask=array.is_null())


def _offsets(array: pa.Array) -> pa.Array:
    """The offsets of lists; of a part of an array too, whose own ones cannot be used together with a mask."""
    return pa.array(array.offsets.to_numpy())


def _loaded(fields: Sequence[AnyField]) -> list[AnyField]:
    """The fields that files have; a load fills the others with nulls."""
    return [f for f in fields if f.field_type in _SCALARS or _loaded(f.fields)]


def _without_nulls(array: pa.Array) -> pa.Array:
    flat, parents = array.flatten(), pc.list_parent_indices(array)
    kept = pc.is_valid(flat)
    sizes = np.bincount(parents.filter(kept).to_numpy(), minlength=len(array))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat.filter(kept))


def arrow_type(field: AnyField) -> pa.DataType:
    """The Arrow type of a field of the staging table."""
    if field.field_type == "RECORD":
        kind = pa.struct([pa.field(f.name, arrow_type(f)) for f in _loaded(field.fields)])
    else:
        kind = _SCALARS[field.field_type]
    return pa.list_(kind) if field.mode == "REPEATED" else kind
