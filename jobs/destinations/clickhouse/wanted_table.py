"""The ClickHouse table that a pipeline file describes, and the statement that creates it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobs.destinations.clickhouse.columns import Column, table_column
from jobs.destinations.clickhouse.engines import deduplication_window, replication
from jobs.destinations.clickhouse.present_types import column_there
from jobs.destinations.clickhouse.spec import DELETED, VERSION, ClickHouseTable
from jobs.spec.columns import row_columns
from jobs.spec.pipeline import PipelineSpec
from sql import literal, render

if TYPE_CHECKING:
    from resources.clickhouse import ClickHouseServer

TOPIC_ID, STEP = "_topic_id", "_step"
_ORIGIN: Mapping[str, str] = {TOPIC_ID: "LowCardinality(String)", STEP: "UInt64"}
# Deduplication windows of replicated tables are also limited by time; a week is longer than an outage.
_WINDOW_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True)
class Layout:
    """The table that the pipeline file describes.

    Attributes:
        ordered: versions contain the `order_by` value, so they are wider.
        window: the number of parts that the deduplication window must remember.
    """

    table: ClickHouseTable
    columns: tuple[Column, ...]
    ordered: bool
    window: int
    cluster: str | None

    @property
    def path(self) -> tuple[str, ...]:
        return self.table.path

    def there(self, types: Mapping[str, str]) -> Layout:
        """The layout for inserts into a table with columns of these types."""
        return replace(self, columns=tuple(column_there(c, types.get(c.name)) for c in self.columns))

    @property
    def keys(self) -> list[str]:
        return [c.name for c in self.columns if c.is_key]

    @property
    def versioned(self) -> bool:
        return self.table.mode != "append"

    @property
    def added(self) -> dict[str, str]:
        """Columns besides the row's own: version and deletion mark."""
        version = {VERSION: "UInt128" if self.ordered else "UInt64"} if self.versioned else {}
        return {**version, **({DELETED: "UInt8"} if self.table.loses_rows else {})}

    @property
    def origin(self) -> Mapping[str, str]:
        """Columns that distinguish steps, and records of a recreated topic from those of its predecessor.

        They are materialized, so that `SELECT *` omits them. Tables of upserts have versions instead.
        """
        is_ours = not self.versioned and "MergeTree" in self.engine
        return _ORIGIN if is_ours else {}

    def has_origin(self, present: Collection[str]) -> bool:
        """Whether a table with these columns has those of `origin`, whatever engine the file names.

        A `Distributed` table over one of ours has them too.
        """
        return not self.versioned and _ORIGIN.keys() <= set(present)

    @property
    def engine(self) -> str:
        """The engine with its arguments."""
        named = self.table.engine or ("ReplacingMergeTree" if self.versioned else "MergeTree")
        if "(" in named or not self.versioned:
            return named
        return f"{named}({', '.join(self.added)})"

    @property
    def order_by(self) -> list[str]:
        if self.table.order_by:
            return self.table.order_by
        return self.keys or ["_topic", "_partition", "_offset"]

    @property
    def summary(self) -> str:
        """The layout in one line, for `plan`."""
        partitions = f", partitioned by {self.table.partition_by}" if self.table.partition_by else ""
        ttl = f", TTL {self.table.ttl}" if self.table.ttl else ""
        return f"{self.engine}, ordered by {', '.join(self.order_by)}{partitions}{ttl}"

    @property
    def settings(self) -> dict[str, str | int]:
        used = {*self.order_by, *re.findall(r"\w+", self.table.partition_by or "")}
        nullable = any("Nullable" in column.type for column in self.columns if column.name in used)
        window: dict[str, str | int] = {deduplication_window(self.engine): self.window}
        if replication(self.engine):
            window["replicated_deduplication_window_seconds"] = _WINDOW_SECONDS
        return {**window, **({"allow_nullable_key": 1} if nullable else {}), **self.table.settings}


def layout_of(spec: PipelineSpec, table: ClickHouseTable, window: int = 0, cluster: str | None = None) -> Layout:
    """The table that a pipeline file describes."""
    return Layout(
        table=table,
        columns=tuple(table_column(c, table.column_types) for c in row_columns(spec, table)),
        ordered=table.mode != "append" and spec.changes.ordered_by is not None,
        window=window,
        cluster=cluster,
    )


def create(server: ClickHouseServer, layout: Layout) -> None:
    """Creates database and table; if another run is faster, its table is used."""
    server.execute(render("clickhouse", "database_create", database=layout.path[0], cluster=layout.cluster))
    server.execute(creation(layout), settings={"flatten_nested": 0})


def creation(layout: Layout) -> str:
    """The statement that creates the table."""
    return render(
        "clickhouse",
        "table_create",
        table=layout.path,
        cluster=layout.cluster,
        columns={**{c.name: c.type for c in layout.columns}, **layout.added, **with_defaults(layout.origin, {})},
        indexed=not layout.versioned and "_offset" not in layout.order_by,
        engine=layout.engine,
        partition_by=layout.table.partition_by,
        order_by=layout.order_by,
        ttl=layout.table.ttl,
        settings=layout.settings,
    )


def with_defaults(origin: Mapping[str, str], topic_ids: Mapping[str, str]) -> dict[str, str]:
    """The columns' types with defaults for rows that were written without them."""
    topics, ids = (", ".join(map(literal, texts)) for texts in (topic_ids, topic_ids.values()))
    known = f"transform(`_topic`, [{topics}], [{ids}], '')" if topic_ids else "''"
    defaults = {TOPIC_ID: known, STEP: "0"}
    return {name: f"{kind} MATERIALIZED {defaults[name]}" for name, kind in origin.items()}
