"""A destination table's rows as its own system gives them, whatever system it is: counted, or some of them as Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
from pyspark.sql import SparkSession

from jobs.changes.columns import RowColumn, row_columns
from jobs.destinations.base import Destination
from jobs.destinations.bigquery.destination import BigQueryDestination
from jobs.destinations.bigquery.read import count_rows
from jobs.destinations.bigquery.statement import partition_filter
from jobs.destinations.clickhouse import tables
from jobs.destinations.clickhouse.destination import ClickHouseDestination
from jobs.destinations.iceberg.destination import IcebergDestination
from jobs.verify.values import compared_in_python, texts
from sql import render

# Rows that ClickHouse reads through (keys and versions only) in a fraction of a second.
_MOST_COUNTED = 5_000_000


@dataclass(frozen=True)
class Contents:
    """What a destination table holds.

    Attributes:
        spark: a session that knows the table's catalog; other systems are asked by their own clients.
    """

    destination: Destination
    spark: SparkSession

    @cached_property
    def columns(self) -> list[RowColumn]:
        """Its columns under the names that they have there."""
        found = self.destination
        if isinstance(found, IcebergDestination):
            return found.columns()
        if isinstance(found, ClickHouseDestination):
            return found.row_columns
        assert isinstance(found, BigQueryDestination)
        names = {c.source: c.name for c in found.columns}
        declared = row_columns(found.spec, list(found.table.metadata_columns))
        return [replace(c, name=names[c.path]) for c in declared]

    def count(self) -> int:
        return int(sum(table["rows"][0].as_py() for table in self._ask("count_rows")))

    def known_count(self) -> int | str | None:
        """Rows, where that costs next to nothing: as the system's metadata has them, or of a small table counted.

        Returns:
            A sentence where the table is too large to be counted at every merge; None where nothing is known.
        """
        found = self.destination
        if isinstance(found, IcebergDestination):
            snapshot = found.catalog.require(found.table.table).snapshot_by_name(found.table.branch)
            summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
            if "total-records" not in summary or summary.get("total-equality-deletes", "0") != "0":
                return None
            return int(summary["total-records"]) - int(summary.get("total-position-deletes", 0))
        if isinstance(found, ClickHouseDestination):
            described = [tables.describe(shard.server, found.layout.path) for shard in found.shards]
            stored = sum(one.rows for one in described if one)
            if not found.layout.versioned:
                return stored
            # Of upserts the server knows stored rows only, replaced ones included.
            return self.count() if stored <= _MOST_COUNTED else f"not counted: {stored:,} stored rows are too many"
        assert isinstance(found, BigQueryDestination)
        return _known_in_bigquery(found)

    def refused(self) -> pa.Table | None:
        """``topic, partition, offset`` of rows that are dead letters beside the table; None where there are none."""
        found = self.destination
        if not isinstance(found, ClickHouseDestination):
            return None
        text = "dead_letters_places"
        places = [
            shard.server.arrow(render("clickhouse", text, table=shard.statements.dead_letters))
            for shard in found.shards
            if shard.has_dead_letters()
        ]
        together = pa.concat_tables(places) if places else None
        return together if together else None

    def duplicate_keys(self) -> int | None:
        """Keys with more than one row; None in Iceberg, where every merge asks for the keys that it touched."""
        if isinstance(self.destination, IcebergDestination):
            return None
        keys = [c.name for c in self.columns if c.is_key]
        return int(sum(table["duplicates"][0].as_py() for table in self._ask("duplicate_keys", keys=keys)))

    def rows(self, columns: Sequence[RowColumn], limit: int) -> pa.Table:
        """These columns of all rows, or of `limit` rows picked at random.

        In the declared types, but for those that are compared apart.
        """
        names, apart = [c.name for c in columns], compared_in_python(self.destination, columns)
        as_text = texts(self.destination, columns)
        found = self._ask("some_rows", columns=names, limit=limit, texts=as_text)
        types = {c.name: c.type for c in columns if c not in apart}

        def declared(table: pa.Table) -> pa.Table:
            arrays = {name: table[name].cast(types.get(name, table[name].type)) for name in names}
            return pa.table(arrays)

        return pa.concat_tables(map(declared, found))

    def present(self) -> list[str]:
        """Names of the columns that the table really has, but those that we add for ourselves."""
        found = self.destination
        if isinstance(found, IcebergDestination):
            return list(found.catalog.require(found.table.table).schema().as_arrow().names)
        if isinstance(found, ClickHouseDestination):
            described = [tables.describe(shard.server, found.layout.path) for shard in found.shards]
            names = {name for one in described if one for name in one.types}
            return sorted(names - set(found.layout.added))
        assert isinstance(found, BigQueryDestination)
        table = found.bigquery.find_table(found.table.table)
        return [field.name for field in table.schema] if table else []

    def _ask(self, template: str, **arguments: object) -> list[pa.Table]:
        """The answer of every server that has a part of the table."""
        found = self.destination
        if isinstance(found, IcebergDestination):
            branch = [] if found.table.branch == "main" else [f"branch_{found.table.branch}"]
            path = (found.catalog.name, *found.table.table.split("."), *branch)
            return [self.spark.sql(render("spark", template, table=path, **arguments)).toArrow()]
        if isinstance(found, ClickHouseDestination):
            final = found.layout.versioned
            text = render("clickhouse", template, table=found.layout.path, final=final, **arguments)
            return [shard.server.arrow(text) for shard in found.shards]
        assert isinstance(found, BigQueryDestination)
        path, whole = (found.bigquery.table_id(found.table.table),), partition_filter(found.table, found.columns)
        text = render("bigquery", template, table=path, whole=whole, **arguments)
        return [found.bigquery.arrow(text, found.name)]


def _known_in_bigquery(found: BigQueryDestination) -> int | None:
    """A query without a filter is answered from metadata, and bills nothing."""
    table = found.bigquery.find_table(found.table.table)
    if table is None:
        return None
    if found.table.require_partition_filter:
        # The filter may have the partition column read, and billed, at every merge.
        return None if table.num_rows is None else int(table.num_rows)
    return count_rows(found.bigquery, found.table, found.columns)
