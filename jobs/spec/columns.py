"""The columns of a destination row, as the pipeline file declares them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.schema.types import inside, own_type, parse_columns, with_inside
from jobs.spec.metadata import metadata_of

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec
    from jobs.spec.tables import Table


@dataclass(frozen=True)
class RowColumn:
    """One column of a destination row.

    Attributes:
        path: in a landed row: ``key.<name>``, ``value.<name>``, or a metadata column's path.
        type: as its values are landed.
        is_key: whether it is part of the key that identifies the row.
        own: the type in the table, if it is one of its own for landed text or bytes (`own_type`).
    """

    name: str
    type: pa.DataType
    nullable: bool
    path: tuple[str, ...]
    is_key: bool = False
    own: pa.DataType | None = None

    @classmethod
    def of(cls, field: pa.Field, nullable: bool, path: tuple[str, ...], is_key: bool = False) -> RowColumn:
        own = own_type(field)
        return cls(field.name, field.type, nullable, path, is_key, own if own != field.type else None)

    @property
    def table_type(self) -> pa.DataType:
        """The type in a table."""
        return self.type if self.own is None else self.own


def key_fields(spec: PipelineSpec) -> list[pa.Field]:
    """The key columns in the order of `changes.key.columns`; empty without a key.

    Undeclared ones are skipped: the rules report them (`jobs.spec.rules`).
    """
    key = spec.changes.key
    if key is None:
        return []
    if key.source == "value":
        origin = parse_columns(spec.source.row)
    elif spec.source.key:
        origin = pa.schema(spec.source.key.struct)
    else:
        return []
    return [origin.field(name).with_nullable(True) for name in key.columns if name in origin.names]


def row_columns(spec: PipelineSpec, table: Table) -> list[RowColumn]:
    """The columns of a table's row: key columns that the value lacks, the value's, then metadata."""
    key = {f.name: f for f in key_fields(spec)}
    op = spec.changes.op
    dropped = op.field if op and not op.keep else None
    declared = [f for f in parse_columns(spec.source.row) if f.name != dropped]
    # A delete has no values, or some of them.
    values = [optional(f) for f in declared] if spec.force_optional or table.deletes_are_rows else declared
    in_value = {f.name for f in values}
    key_nullable = bool(spec.changes.key and spec.changes.key.nulls == "match")
    from_key = [
        RowColumn.of(f, key_nullable, ("key", f.name), is_key=True) for f in key.values() if f.name not in in_value
    ]
    from_value = [
        RowColumn.of(key[f.name], key_nullable, ("key", f.name), is_key=True)
        if f.name in key
        else RowColumn.of(f, f.nullable, ("value", f.name))
        for f in values
    ]
    added = [RowColumn(m.column, m.type, True, m.path) for m in metadata_of(table.metadata_columns)]
    return [*from_key, *from_value, *added]


def optional(field: pa.Field) -> pa.Field:
    """The field, made optional together with all nested fields."""
    return field.with_type(with_inside(field.type, [optional(f) for f in inside(field.type)])).with_nullable(True)
