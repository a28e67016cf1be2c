"""Columns that records have brought and in which a destination table does not accept null.

They are kept in a property of the intermediate table, where the columns themselves are optional: dead letters have no
values.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from jobs.iceberg.table_property import REQUIRED_COLUMNS
from jobs.spec.added_columns import required_columns
from jobs.spec.pipeline import PipelineSpec


def required_property(properties: Mapping[str, str], spec: PipelineSpec, pipeline: str) -> dict[str, str]:
    """Returns the table property that keeps the required columns; empty if the table has it."""
    required = required_columns(spec)
    known = REQUIRED_COLUMNS.read(properties, pipeline)
    return REQUIRED_COLUMNS.written(required, pipeline) if required != known else {}


def with_required(landed: pa.Schema, properties: Mapping[str, str], pipeline: str) -> pa.Schema:
    """The intermediate table's columns, with the required fields of `value` not nullable."""
    required = set(REQUIRED_COLUMNS.read(properties, pipeline))
    if not required:
        return landed
    value = landed.field("value")
    fields = [f.with_nullable(f.nullable and f.name not in required) for f in value.type]
    return landed.set(landed.get_field_index("value"), value.with_type(pa.struct(fields)))
