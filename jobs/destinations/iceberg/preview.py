"""What a merge does to an Iceberg table, as SQL, as far as the pipeline file alone tells it: for plans and people."""

from __future__ import annotations

from jobs.destinations.iceberg.columns import table_columns
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.spec.pipeline import PipelineSpec
from sql import render

_ELSE = "-- Where the table takes position deletes, the same is written without a MERGE."


def statement(spec: PipelineSpec, table: IcebergTable) -> str:
    """Empty for mode append: such a table gets data files."""
    key = spec.changes.key
    if table.mode == "append" or key is None:
        return ""
    text = render(
        "spark",
        "merge",
        target=(table.connection, *table.table.split("."), "branch_…"),
        changes=["last_changes"],
        tombstones=None,
        keys=tuple(key.columns),
        columns=[c.name for c in table_columns(spec, table)],
        mode=table.mode,
        named=False,
        null_safe=key.nulls == "match",
        bounded={},
        order_by=spec.changes.ordered_by,
        unchanged=(),
        truncated_below=None,
    )
    return text if table.write == "copy_on_write" else f"{text}\n{_ELSE}"
