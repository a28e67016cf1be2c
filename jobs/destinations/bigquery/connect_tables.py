"""A table of the BigQuery sinks, taken over with its columns."""

from __future__ import annotations

from typing import get_args

import pyarrow as pa
from google.cloud.bigquery import SchemaField

from jobs.connect_import.known import NOT_NULL, KnownTable
from jobs.destinations.bigquery.columns import ARROW_TYPES, schema_field
from jobs.destinations.bigquery.schema import standard_type
from jobs.destinations.bigquery.spec import BigQueryType
from jobs.destinations.bigquery.type_parameters import declared_digits
from jobs.schema.types import type_name
from resources.bigquery import BigQuery

_SCALARS = {
    **{name: type_name(kind) for name, kind in ARROW_TYPES.items()},
    "NUMERIC": "decimal(38,9)",
    # A declared decimal has 38 digits, BIGNUMERIC 76: half of the 38 are before the point.
    "BIGNUMERIC": "decimal(38,19)",
    **dict.fromkeys(["TIME", "GEOGRAPHY"], "string"),
    "JSON": "text",
}
_TYPES = get_args(BigQueryType)


def known(bigquery: BigQuery, table: str) -> KnownTable | None:
    """The table of this name; None if there is none."""
    found = bigquery.find_table(table)
    if found is None:
        return None
    columns, native, todo = dict[str, str](), dict[str, str](), list[str]()
    for field in found.schema:
        if kind := declared_type(field):
            columns[field.name] = kind
            if field.field_type in _TYPES and field.mode != "REPEATED":
                native[field.name] = field.field_type
        else:
            kept = "must not be REQUIRED: relax it first" if field.mode == "REQUIRED" else "gets no values any more"
            todo.append(f"{table}: {field.name} has parts that no column of a pipeline file becomes: it {kept}")
    return KnownTable(columns, native, usual, todo=todo)


def declared_type(field: SchemaField, nested: bool = False) -> str | None:
    """The pipeline file's type for this column, with `not null`; None if there is no such type.

    Args:
        nested: the field is a part of a column, for which `column_types` cannot give a type.
    """
    standard = standard_type(field)
    if standard == "RECORD":
        parts = {part.name: declared_type(part, nested=True) for part in field.fields}
        kinds = {name: kind for name, kind in parts.items() if kind}
        if len(kinds) < len(parts):
            return None
        if field.mode == "REPEATED" and parts.keys() == {"key", "value"}:
            # The sinks write maps like this.
            return f"map<{kinds['key'].removesuffix(NOT_NULL)},{kinds['value']}>"
        kind = f"struct<{', '.join(f'`{name}`: {kind}' for name, kind in kinds.items())}>"
    elif standard not in _SCALARS or (nested and standard in ("TIME", "GEOGRAPHY", "JSON")):
        return None
    else:
        kind = _SCALARS[standard]
        if (digits := declared_digits(field)) is not None:
            kind = type_name(digits)
            if (nested or field.mode == "REPEATED") and usual(pa.field("", digits)) != standard:
                return None
    if field.mode == "REPEATED":
        return f"array<{kind}>"
    return kind + (NOT_NULL if field.mode == "REQUIRED" else "")


def usual(column: pa.Field) -> str:
    """The type that a declared column has unless `column_types` names another."""
    return schema_field(column.name, column.type, "NULLABLE", True, "", required=False).field_type
