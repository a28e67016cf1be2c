"""The layout of a BigQuery table that exists, compared with what the pipeline file says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from google.cloud import bigquery

from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.tables import DAY_MS, destination_table
from jobs.destinations.layout_differences import differences


def layout_differences(table: BigQueryTable, find: Callable[[], bigquery.Table | None]) -> Iterator[str]:
    """Options of the file that the table does not have (`differences`)."""
    wanted = destination_table("of.no.table", table, ())

    def present() -> dict[str, object] | None:
        found = find()
        return _options(found, table.labels) if found else None

    return differences(_options(wanted, table.labels), present)


def _options(table: bigquery.Table, labels: Iterable[str]) -> dict[str, object]:
    """The options that a table has, of its labels these."""
    partitions = table.time_partitioning
    column, expiration = (partitions.field, partitions.expiration_ms) if partitions else (None, None)
    # BigQuery does not tell upper from lower case in names of columns.
    return {
        "time_partitioning": partitions.type_ if partitions else None,
        "partition_column": column and column.lower(),
        "partition_expiration_days": int(expiration) // DAY_MS if expiration else None,
        "require_partition_filter": bool(table.require_partition_filter),
        "cluster_by": [name.lower() for name in table.clustering_fields or ()],
        "description": table.description,
        **{f"labels.{name}": table.labels.get(name) for name in labels},
    }
