"""Whether BigQuery may load the landed files of a pipeline as they are. Pure.

A landed row has the shape of the staging table (`key`, `value`, `partitionTime`, `i`, `batchNumber`) with more
beside it, which a load passes over (vendor page "REST: JobConfigurationLoad", `ignoreUnknownValues`). Then no row
passes through the run, however large the batch: BigQuery reads what Spark has landed, or copies of it. A landed delete
may have a value, so the staging table of such a table has `op` too, and the merge goes by it. Spark's tasks write rows
again all the same where the table's rows are not the landed ones: only some of them (routes), another shape (an order,
metadata columns, names that sanitising changes, deletes that are rows), or types that load jobs read in a way of their
own (bytes, arrays, maps, DATETIME, BIGNUMERIC); and where files hold dead letters beside the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from jobs.changes.routing import route_filter
from jobs.destinations.bigquery.columns import Column
from jobs.destinations.bigquery.field import AnyField, Field
from jobs.destinations.bigquery.limits import may_refuse
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.statements import order_column
from jobs.destinations.bigquery.type_parameters import is_limited
from jobs.spec.columns import row_columns
from jobs.spec.pipeline import PipelineSpec

_READ_ALIKE = frozenset({"BOOLEAN", "INTEGER", "FLOAT", "STRING", "DATE", "TIMESTAMP", "NUMERIC"})
# Source URIs of one load job (vendor page "Quotas and limits").
MOST_FILES = 10_000


def takes_landed_rows(
    spec: PipelineSpec, table: BigQueryTable, columns: Sequence[Column], present: Sequence[AnyField] = ()
) -> bool:
    """Whether a landed row is a row of the staging table, without a change to it.

    Args:
        present: the fields of the destination table, if it exists.
    """
    return (
        route_filter(spec, table) is None
        and not table.deletes_are_rows
        and order_column(spec, columns) is None
        # A table of key columns only has a placeholder value in its staging table, which landed rows lack.
        and any(not c.is_key for c in columns)
        and all(
            c.source == c.path and _is_as_landed(c.staged, declared.type)
            for c, declared in zip(columns, row_columns(spec, table), strict=True)
        )
        # A conversion may fail, and a column may have no room, so each row has to be checked.
        and not any(may_refuse(c.conversion) or is_limited(c, present) for c in columns)
    )


def can_read(files: Sequence[str], prefixes: Sequence[str]) -> bool:
    """Whether BigQuery reaches all of these files by itself."""
    return 0 < len(files) <= MOST_FILES and all(file.startswith(tuple(prefixes)) for file in files)


def _is_as_landed(field: Field, landed: pa.DataType) -> bool:
    """Whether a load reads a landed column into this field: it has the same names inside."""
    if field.mode == "REPEATED":
        return False
    if field.field_type == "RECORD":
        parts = zip(field.fields, landed, strict=True)
        return all(child.name == part.name and _is_as_landed(child, part.type) for child, part in parts)
    return field.field_type in _READ_ALIKE
