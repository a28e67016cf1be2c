"""The layout of a BigQuery table that exists, compared with what the pipeline file says."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from google.cloud import bigquery

from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.tables import DAY_MS
from jobs.destinations.layout_differences import differences


def layout_differences(table: BigQueryTable, find: Callable[[], bigquery.Table | None]) -> Iterator[str]:
    """Options of the file that the table does not have (`differences`)."""
    names = {f"labels.{name}": name for name in table.labels}
    # BigQuery does not tell upper from lower case in names of columns.
    declared = {
        "time_partitioning": table.time_partitioning,
        "partition_column": table.partition_column and table.partition_column.lower(),
        "partition_expiration_days": table.partition_expiration_days,
        "require_partition_filter": table.require_partition_filter,
        "cluster_by": [name.lower() for name in table.cluster_by],
        "description": table.description,
        **{option: table.labels[name] for option, name in names.items()},
    }

    def present() -> dict[str, object] | None:
        found = find()
        if found is None:
            return None
        partitions = found.time_partitioning
        expiration = partitions.expiration_ms if partitions else None
        column, clustered = partitions.field if partitions else None, found.clustering_fields or ()
        return {
            "time_partitioning": partitions.type_ if partitions else None,
            "partition_column": column and column.lower(),
            "partition_expiration_days": int(expiration) // DAY_MS if expiration else None,
            "require_partition_filter": bool(found.require_partition_filter),
            "cluster_by": [name.lower() for name in clustered],
            "description": found.description,
            **{option: found.labels.get(name) for option, name in names.items()},
        }

    return differences(declared, present)
