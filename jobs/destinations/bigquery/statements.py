"""The one statement that applies a flush to the destination table: its template's arguments, decided from the spec."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from jobs.destinations.bigquery.columns import Column, KeyPart, key_parts
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.spec.pipeline import PipelineSpec
from sql import render

_TEMPLATES = {
    "append": "append",
    "upsert": "merge_upsert",
    "upsert_delete": "merge_upsert",
    "delete": "merge_delete",
}
# Types whose smallest and largest values are the same after a round trip through text.
_BOUNDED = {"INTEGER": "INT64", "STRING": "STRING", "DATE": "DATE", "TIMESTAMP": "TIMESTAMP", "DATETIME": "DATETIME"}


@dataclass(frozen=True)
class Bound:
    """A key column between its smallest and largest value; `low` and `high` are names of query parameters."""

    name: str
    type: str
    low: str
    high: str


@dataclass(frozen=True)
class Whole:
    """The partition column of a table that demands a filter, with the type of a literal."""

    name: str
    type: str


@dataclass(frozen=True)
class Statement:
    """The arguments of the templates in sql/bigquery.

    Attributes:
        target, staging_table: ``project.dataset.table``.
        others: the columns that are not part of the key.
        order_by: the column whose larger value wins; None: the order of the batches.
        bounds: of key columns that partition or cluster the table.
        by_record_time: HOUR, DAY, MONTH or YEAR where a row's partition follows its record; else None.
        says_op: rows of the staging table have an operation, so a delete may have a value.
        unchanged: columns that some changes leave as they were.
        truncated: leave out changes whose order is below `@below`.
        truncates: delete rows whose order is below `@below`.
        coordinates: columns that identify rows that the table has already (replay); else empty.
        recreated: for each topic that was recreated since the table has rows: the first batches of its later
            incarnations.
    """

    mode: str
    target: str
    staging_table: str
    columns: tuple[Column, ...]
    keys: tuple[KeyPart, ...]
    null_safe: bool
    order_by: str | None
    bounds: tuple[Bound, ...]
    whole: Whole | None
    by_record_time: str | None
    says_op: bool
    coordinates: tuple[str, ...] = ()
    recreated: tuple[tuple[int, ...], ...] = ()
    unchanged: tuple[Column, ...] = ()
    truncated: bool = False
    truncates: bool = False

    @property
    def others(self) -> list[Column]:
        return [c for c in self.columns if not c.is_key]

    def column_of(self, *source: str) -> str:
        """The column that this part of a landed row becomes."""
        return next(c.name for c in self.columns if c.source == source)

    def text(self) -> str:
        return render("bigquery", _TEMPLATES[self.mode], a=self)

    def bounds_text(self) -> str:
        return render("bigquery", "key_bounds", staging_table=self.staging_table, bounds=self.bounds)

    def unchanged_columns_text(self) -> str:
        return render("bigquery", "unchanged_columns", staging_table=self.staging_table)

    def keeping(self, landed: Collection[str]) -> Statement:
        """The statement for changes that leave these columns as they were, by their names as landed."""
        return replace(
            self, unchanged=tuple(c for c in self.others if c.source[0] == "value" and c.source[-1] in landed)
        )

    def unbounded(self) -> Statement:
        """The statement without bounds: for keys that may be null it has to search the whole table."""
        return replace(self, bounds=())


def statement(
    spec: PipelineSpec, table: BigQueryTable, columns: Sequence[Column], target: str, staging_table: str, says_op: bool
) -> Statement:
    """The statement of a table's mode."""
    keys = key_parts(columns, table.title) if table.needs_key else []
    order = order_column(spec, columns) if table.needs_key else None
    return Statement(
        mode=table.mode,
        target=target,
        staging_table=staging_table,
        columns=tuple(columns),
        keys=tuple(keys),
        # A null inside a struct does not make the key null, so such nulls always equal each other.
        null_safe=bool(spec.changes.key and spec.changes.key.nulls == "match") or any(len(k.path) > 1 for k in keys),
        order_by=order.name if order else None,
        bounds=tuple(_bounds(table, columns)) if table.needs_key else (),
        whole=partition_filter(table, columns),
        by_record_time=_record_time(table),
        says_op=says_op,
    )


def order_column(spec: PipelineSpec, columns: Sequence[Column]) -> Column | None:
    """The column that the pipeline orders changes by; None for the order of the batches."""
    wanted = spec.changes.ordered_by
    if not wanted:
        return None
    return next((c for c in columns if c.source[-1] == wanted and c.source[0] in ("key", "value")), None)


def _bounds(table: BigQueryTable, columns: Sequence[Column]) -> list[Bound]:
    """Bounds of key columns that partition or cluster the table, so that partitions and blocks are left out."""
    layout = {n.lower() for n in [*table.cluster_by[:1], *([table.partition_column] if table.partition_column else [])]}
    found = [c for c in columns if c.is_key and c.name.lower() in layout and c.field.field_type in _BOUNDED]
    return [Bound(c.name, _BOUNDED[c.field.field_type], f"low_{n}", f"high_{n}") for n, c in enumerate(found)]


def partition_filter(table: BigQueryTable, columns: Sequence[Column]) -> Whole | None:
    """The column that a query of the whole table has to filter by; None if the table demands no filter."""
    if not table.require_partition_filter:
        return None
    if table.partition_column is None:
        return Whole("_PARTITIONTIME", "TIMESTAMP")
    column = next(c for c in columns if c.name.lower() == table.partition_column.lower())
    return Whole(column.name, column.field.field_type)


def _record_time(table: BigQueryTable) -> str | None:
    return table.time_partitioning if table.by_ingestion_time and table.partition_time != "ingestion" else None
