"""Values of columns that Spark does not compare: nested ones, and those whose type in the table the file names.

What is expected of a row and what the table has are brought into one form: for a named type, into the text that the
table's own system gives of both; else into plain Python values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from google.cloud.bigquery import ArrayQueryParameter

from jobs.changes.columns import RowColumn
from jobs.destinations.base import Destination
from jobs.destinations.bigquery.columns import Column
from jobs.destinations.bigquery.destination import BigQueryDestination
from jobs.destinations.bigquery.staging import Stager
from jobs.destinations.clickhouse.destination import ClickHouseDestination
from jobs.destinations.clickhouse.insertion import to_arrow_file
from sql import quote, render

_ROW = "__row"
# Values of one question to BigQuery.
_AT_ONCE = 1000


def compared_in_python(destination: Destination, columns: Sequence[RowColumn]) -> list[RowColumn]:
    """Those of the columns whose values Spark does not compare. By keys and coordinates it looks rows up."""
    named = getattr(destination.table, "column_types", {})
    values = [c for c in columns if c.path[0] == "value"]
    return [c for c in values if pa.types.is_nested(c.type) or c.path[-1] in named]


def texts(destination: Destination, columns: Sequence[RowColumn]) -> dict[str, str]:
    """Columns that the system is to give as text, with their types there."""
    apart = {c.name for c in compared_in_python(destination, columns)}
    if isinstance(destination, ClickHouseDestination):
        types = {c.name: c.type for c in destination.layout.columns}
        # A key of a named type is looked up as what it was declared as.
        return {c.name: types[c.name] for c in columns if c.name in apart or _is_renamed_text(destination, c)}
    if isinstance(destination, BigQueryDestination):
        return {c.name: c.field.field_type for c in destination.columns if c.conversion and c.name in apart}
    return {}


def _is_renamed_text(destination: ClickHouseDestination, column: RowColumn) -> bool:
    return column.name in destination.table.column_types and pa.types.is_string(column.type)


def differences(destination: Destination, column: RowColumn, expected: pa.Array, found: pa.Array) -> int:
    """How many values of the table are not the ones that the landed changes make of them."""
    if isinstance(destination, ClickHouseDestination):
        pairs = zip(_stored_in_clickhouse(destination, column, expected), found.to_pylist(), strict=True)
        return sum(one != other for one, other in pairs)
    if isinstance(destination, BigQueryDestination):
        own = next(c for c in destination.columns if c.name == column.name)
        if own.conversion:
            pairs = zip(_stored_in_bigquery(destination, own, expected), found.to_pylist(), strict=True)
            return sum(one != other for one, other in pairs)
        stager = Stager([own], [], destination.table, destination.name)
        expected = stager.shaped(expected, own.staged)
    # BigQuery does not tell a null array from an empty one.
    gone = isinstance(destination, BigQueryDestination)
    pairs = zip(expected.to_pylist(), found.to_pylist(), strict=True)
    return sum(plain(one, gone) != plain(other, gone) for one, other in pairs)


def _stored_in_clickhouse(
    destination: ClickHouseDestination, column: RowColumn, expected: pa.Array
) -> list[str | None]:
    """As the server stores and shows them."""
    own = next(c for c in destination.layout.columns if c.name == column.name)
    rows = pa.table({own.name: expected, _ROW: pa.array(range(len(expected)), pa.int64())})
    text = render("clickhouse", "stored_values", column=own)
    structure = f"{quote('clickhouse', own.name)} {own.wire}, {_ROW} Int64"
    return [row["stored"] for row in destination.shards[0].server.rows_beside(text, to_arrow_file(rows), structure)]


def _stored_in_bigquery(destination: BigQueryDestination, column: Column, expected: pa.Array) -> list[str | None]:
    """As BigQuery converts and shows them; only what differs is sent."""
    given = pc.unique(expected.drop_null()).cast(pa.string()).to_pylist()
    text = render("bigquery", "stored_values", column=column)
    stored = dict[str, str]()
    for start in range(0, len(given), _AT_ONCE):
        part = given[start : start + _AT_ONCE]
        answer = destination.bigquery.arrow(text, destination.name, [ArrayQueryParameter("values", "STRING", part)])
        stored |= dict(zip(part, answer["stored"].to_pylist(), strict=True))
    return [None if value is None else stored[value] for value in expected.cast(pa.string()).to_pylist()]


def plain(value: object, empty_is_null: bool = False) -> object:
    """A value that equals another one where the two mean the same: NaN equals NaN, maps have no order."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return sorted((name.lower(), plain(part, empty_is_null)) for name, part in value.items())
    if isinstance(value, list):
        if empty_is_null and not value:
            return None
        parts = [plain(part, empty_is_null) for part in value]
        # Arrow gives a map as its pairs.
        return sorted(parts, key=repr) if value and isinstance(value[0], tuple) else parts
    if isinstance(value, tuple):
        return tuple(plain(part, empty_is_null) for part in value)
    return value
