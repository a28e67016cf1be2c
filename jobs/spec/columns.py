"""Names of the columns that a destination table will have, as far as the pipeline file says; for its checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.schema.types import parse_columns
from jobs.spec.tables import Table

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec


def key_fields(spec: PipelineSpec) -> list[pa.Field]:
    """The key columns that are declared; the others are a mistake of their own."""
    key = spec.changes.key
    if key is None:
        return []
    if key.source == "value":
        origin = parse_columns(spec.source.row)
    elif spec.source.key:
        origin = parse_columns(spec.source.key.columns)
    else:
        return []
    return [origin.field(name) for name in key.columns if name in origin.names]


def table_columns(spec: PipelineSpec, table: Table) -> list[str]:
    """Key columns, those of the value (without the op field that is not kept) and metadata columns."""
    op = spec.changes.op
    dropped = op.field if op and not op.keep else None
    from_value = [name for name in spec.source.row if name != dropped]
    from_key = [field.name for field in key_fields(spec) if field.name not in from_value]
    return [*from_key, *from_value, *(f"_{name}" for name in table.metadata_columns)]
