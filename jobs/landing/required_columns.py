"""Columns that records have brought and in which a destination table does not accept null.

They are kept in a property of the intermediate table, where the columns themselves are optional: dead letters have no
values.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyiceberg.table import Table

from jobs.iceberg.table_property import REQUIRED_COLUMNS
from jobs.spec.added_columns import required_columns
from jobs.spec.pipeline import PipelineSpec
from resources.iceberg_errors import catalog_errors


def record_required(table: Table, spec: PipelineSpec, pipeline: str) -> None:
    """Stores the required columns in the intermediate table's properties, before these columns exist."""
    if required_columns(spec) != REQUIRED_COLUMNS.read(table.properties, pipeline):
        with catalog_errors(".".join(table.name())), table.transaction() as change:
            change.set_properties(required_property(spec, pipeline))


def required_property(spec: PipelineSpec, pipeline: str) -> dict[str, str]:
    """The property of an intermediate table that has these columns."""
    return REQUIRED_COLUMNS.written(required_columns(spec), pipeline)


def with_required(landed: pa.Schema, properties: Mapping[str, str], pipeline: str) -> pa.Schema:
    """The intermediate table's columns, with the required fields of `value` not nullable."""
    required = set(REQUIRED_COLUMNS.read(properties, pipeline))
    if not required:
        return landed
    value = landed.field("value")
    fields = [f.with_nullable(f.nullable and f.name not in required) for f in value.type]
    return landed.set(landed.get_field_index("value"), value.with_type(pa.struct(fields)))
