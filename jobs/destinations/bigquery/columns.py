"""The columns of a destination table in BigQuery: names, types, and how the staging table has them. Pure.

=====================  ============================  ==============================================================
declared               BigQuery                      remark
=====================  ============================  ==============================================================
int, long              INT64
float, double          FLOAT64                       NaN and infinities as they are; never part of a key
decimal(p,s)           NUMERIC, else BIGNUMERIC      NUMERIC where s <= 9 and p - s <= 29
string, binary         STRING, BYTES
uuid, fixed(n)         STRING, BYTES
time                   TIME                          STRING inside arrays, maps and structs; never part of a key
date                   DATE
timestamp              TIMESTAMP                     microseconds
timestamp_ntz          DATETIME                      microseconds
array<T>               REPEATED T                    null and empty are the same there; no arrays of arrays
map<K,V>               REPEATED STRUCT<key, value>
struct<…>              STRUCT                        all nested fields by the same rules
=====================  ============================  ==============================================================

`column_types` of the table gives a column another type (JSON, GEOGRAPHY, TIME, …). In the staging table such a column
has its declared type, and the merge converts it: load jobs know those types only in part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from jobs.changes.columns import UNCHANGED
from jobs.destinations.bigquery.field import Field
from jobs.destinations.bigquery.names import column_names
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.schema.types import type_name
from jobs.spec.columns import RowColumn, row_columns
from jobs.spec.pipeline import PipelineSpec
from resources.errors import ConfigurationError

# Arrow's type for each of BigQuery's that has only one.
ARROW_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "INTEGER": pa.int64(),
    "FLOAT": pa.float64(),
    "STRING": pa.string(),
    "BYTES": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "DATETIME": pa.timestamp("us"),
}
_SCALARS = {kind: name for name, kind in ARROW_TYPES.items()} | {pa.int32(): "INTEGER", pa.float32(): "FLOAT"}
# The types that `column_types` may give to a declared type; the conversions are in sql/bigquery/values.sql.j2.
_CONVERSIONS: dict[str, frozenset[str]] = {
    "string": frozenset({"JSON", "GEOGRAPHY", "TIME", "DATE", "DATETIME", "TIMESTAMP", "NUMERIC", "BIGNUMERIC"}),
    "int": frozenset({"TIME", "DATE", "NUMERIC", "BIGNUMERIC"}),
    "long": frozenset({"TIME", "NUMERIC", "BIGNUMERIC"}),
    "decimal": frozenset({"BIGNUMERIC"}),
}
# Neutral values for the null-safe comparison of keys; also the list of types that a key may have.
_NEUTRAL = {
    "BOOLEAN": "FALSE",
    "INTEGER": "0",
    "STRING": "''",
    "BYTES": "b''",
    "DATE": "DATE '1970-01-01'",
    "TIMESTAMP": "TIMESTAMP '1970-01-01 00:00:00+00'",
    "DATETIME": "DATETIME '1970-01-01 00:00:00'",
    "NUMERIC": "NUMERIC '0'",
    "BIGNUMERIC": "BIGNUMERIC '0'",
}
# The column's name in a landed row too.
OP = "op"


@dataclass(frozen=True)
class Column:
    """One column of the destination table.

    Attributes:
        source: where it is in a landed row.
        staged: the field in the staging table's `key` or `value` struct.
        field: the column in the destination table.
        conversion: ``<declared>_to_<type>``; None if the value is taken as it is.
    """

    source: tuple[str, ...]
    is_key: bool
    staged: Field
    field: Field
    conversion: str | None

    @property
    def name(self) -> str:
        return str(self.field.name)

    @property
    def path(self) -> tuple[str, str]:
        """Where it is in a row of the staging table."""
        return ("key" if self.is_key else "value", self.name)


@dataclass(frozen=True)
class KeyPart:
    """A leaf of the key: BigQuery neither groups nor joins by structs.

    Attributes:
        path: the names from the key column to the leaf.
        neutral: a literal of its type, which replaces null when keys are compared.
    """

    path: tuple[str, ...]
    neutral: str


def destination_columns(spec: PipelineSpec, table: BigQueryTable) -> list[Column]:
    """The columns of the destination table, which `jobs.destinations.bigquery.rules` has checked."""
    declared = row_columns(spec, table)
    names = column_names([c.name for c in declared], table.sanitize_names, table.title, table.metadata_names)
    return [table_column(c, names[c.name], table) for c in declared]


def renamed_columns(spec: PipelineSpec, table: BigQueryTable) -> list[RowColumn]:
    """The row's columns under their names in BigQuery."""
    names = {c.source: c.name for c in destination_columns(spec, table)}
    return [replace(c, name=names[c.path]) for c in row_columns(spec, table)]


def key_parts(columns: Sequence[Column], where: str) -> list[KeyPart]:
    """The leaves of the key, nested structs expanded.

    Raises:
        ConfigurationError: a part of the key has a type by which BigQuery cannot compare rows.
    """
    return [part for c in columns if c.is_key for part in _leaves((c.name,), c, c.field, where)]


def _leaves(path: tuple[str, ...], column: Column, field: Field, where: str) -> Iterator[KeyPart]:
    if field.field_type == "RECORD" and field.mode != "REPEATED":
        for child in field.fields:
            yield from _leaves((*path, child.name), column, child, where)
        return
    if field.mode == "REPEATED" or field.field_type not in _NEUTRAL or column.conversion:
        kind = "an array or a map" if field.mode == "REPEATED" else field.field_type
        raise ConfigurationError(
            f"the key column {'.'.join(path)} is {kind}, by which BigQuery cannot tell rows apart",
            where=where,
            remedy="use whole numbers, text, bytes, decimals, dates, timestamps or booleans, or structs of them",
        )
    yield KeyPart(path, _NEUTRAL[field.field_type])


def table_column(declared: RowColumn, name: str, table: BigQueryTable) -> Column:
    """The table's column for a row's column.

    Raises:
        ConfigurationError: BigQuery does not have its type, or cannot convert to the one of `column_types`.
    """
    mode = "NULLABLE" if declared.nullable else "REQUIRED"
    sanitize, where = table.sanitize_names, table.title
    staged = schema_field(name, declared.type, "NULLABLE", sanitize, where, required=False)
    wanted = table.column_types.get(declared.name, "TIME" if declared.own == pa.time64("us") else None)
    if wanted is None:
        field = schema_field(name, declared.type, mode, sanitize, where, required=True)
        return Column(declared.path, declared.is_key, staged, field, None)
    kind = "decimal" if pa.types.is_decimal(declared.type) else type_name(declared.type)
    if wanted not in _CONVERSIONS.get(kind, ()):
        raise ConfigurationError(
            f"{declared.name} is {kind}, which does not become {wanted}",
            where=where,
            remedy="declare it as string, or leave the type to the declaration",
        )
    digits = (declared.type.precision, declared.type.scale) if kind == "decimal" else (None, None)
    field = Field(name, wanted, mode, (), *digits)
    return Column(declared.path, declared.is_key, staged, field, f"{kind}_to_{wanted}")


def schema_field(name: str, kind: pa.DataType, mode: str, sanitize: bool, where: str, required: bool) -> Field:
    """The BigQuery field of a declared type; `required` keeps the nested `not null`.

    Raises:
        ConfigurationError: BigQuery has no such type (arrays of arrays), or a nested name is not allowed.
    """
    if pa.types.is_struct(kind):
        names = column_names([c.name for c in kind], sanitize, f"{where}, column {name}")
        modes = ["REQUIRED" if required and not c.nullable else "NULLABLE" for c in kind]
        fields = [
            schema_field(names[c.name], c.type, m, sanitize, where, required) for c, m in zip(kind, modes, strict=True)
        ]
        return Field(name, "RECORD", mode=mode, fields=tuple(fields))
    if pa.types.is_map(kind):
        pair = pa.struct([pa.field("key", kind.key_type, False), kind.item_field.with_name("value")])
        return schema_field(name, pair, "REPEATED", sanitize, where, required)
    if pa.types.is_list(kind):
        element = schema_field(name, kind.value_type, "NULLABLE", sanitize, where, required)
        if element.mode == "REPEATED":
            raise ConfigurationError(
                f"column {name} is an array of arrays or maps, which BigQuery does not have",
                where=where,
                remedy="put a struct in between: array<struct<items: array<…>>>",
            )
        return replace(element, mode="REPEATED")
    if pa.types.is_decimal(kind):
        return Field(name, "NUMERIC" if is_numeric(kind) else "BIGNUMERIC", mode, (), kind.precision, kind.scale)
    return Field(name, _SCALARS[kind], mode=mode)


def is_numeric(kind: pa.DataType) -> bool:
    """Whether a decimal becomes NUMERIC, and not BIGNUMERIC."""
    return bool(pa.types.is_decimal(kind) and kind.scale <= 9 and kind.precision - kind.scale <= 29)


def staging_fields(
    columns: Sequence[Column], order_by: Column | None, names_unchanged: bool = False, says_op: bool = False
) -> list[Field]:
    """The staging table's schema (`docs/internals.md`, BigQuery connector).

    Args:
        order_by: the column by which changes are ordered; `orderBy` has its values.
        names_unchanged: add `kept`: the names of columns that a change leaves as they were, as they are landed.
        says_op: add `op`: the operation of a change, as it is landed; without it a delete has no value.
    """
    keys = [c.staged for c in columns if c.is_key]
    values = [c.staged for c in columns if not c.is_key]
    # A table of key columns only still has to tell a row from a delete, and BigQuery has no struct without fields.
    values = values or [Field("present", "BOOLEAN")]
    order = [Field("orderBy", order_by.staged.field_type)] if order_by else []
    return [
        *([Field("key", "RECORD", fields=tuple(keys))] if keys else []),
        Field("value", "RECORD", fields=tuple(values)),
        *order,
        Field("partitionTime", "TIMESTAMP"),
        Field("i", "INTEGER", mode="REQUIRED"),
        Field("batchNumber", "INTEGER", mode="REQUIRED"),
        *([Field(OP, "STRING")] if says_op else []),
        *([Field(UNCHANGED.name, "STRING", mode="REPEATED")] if names_unchanged else []),
    ]
