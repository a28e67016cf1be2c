"""The columns of an Iceberg table's rows: as they are declared, but for names of Iceberg's own."""

from __future__ import annotations

from dataclasses import replace

from jobs.changes.columns import RowColumn, row_columns
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.spec.pipeline import PipelineSpec
from resources.errors import ConfigurationError

# Metadata columns of Iceberg tables: https://iceberg.apache.org/spec/#reserved-field-ids
_RESERVED = {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}


def table_columns(spec: PipelineSpec, table: IcebergTable) -> list[RowColumn]:
    """The row's columns. `_partition` is Iceberg's own, so ours is `__partition`.

    Raises:
        ConfigurationError: another column has a name of Iceberg's own: it would refuse every MERGE.
    """
    columns = row_columns(spec, [m for m in table.metadata_columns if m != "partition"])
    taken = sorted(_RESERVED.intersection(c.name.lower() for c in columns))
    if taken:
        raise ConfigurationError(
            f"Iceberg has columns of its own named {', '.join(taken)}",
            where=f"iceberg {table.table}",
            remedy="give these columns of `source` other names",
        )
    added = row_columns(spec, list(table.metadata_columns))
    return [replace(c, name="__partition") if c.path == ("kafka", "partition") else c for c in added]
