"""Creates a ClickHouse table from the declared columns, and adapts it to them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.destinations.clickhouse.columns import Column, clickhouse_type, table_column
from jobs.destinations.clickhouse.present_types import arrow_type, declared_part
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.evolution import AddColumn, SchemaChange, evolved, plan_evolution
from jobs.spec.columns import row_columns
from jobs.spec.pipeline import PipelineSpec
from resources.errors import SchemaRefused
from sql import literal, render

if TYPE_CHECKING:
    from resources.clickhouse import ClickHouseServer

VERSION, DELETED = "_version", "_deleted"
TOPIC_ID, STEP = "_topic_id", "_step"
# Deduplication windows of replicated tables are also limited by time; a week is longer than an outage.
_WINDOW_SECONDS = 7 * 24 * 3600
# Of engines that join rows with one sorting key; the second ones make values that no record has.
_CHOOSING, _COMPUTING = "Replacing|Collapsing", "Summing|Aggregating|Coalescing|Graphite"


def joins_rows(engine: str) -> bool:
    """Whether an engine joins rows, so that a table lacks records although it got all of them."""
    return re.search(f"{_CHOOSING}|{_COMPUTING}", engine) is not None


def engine_warnings(engine: str) -> Iterator[str]:
    """What a person should know of an append table with this engine."""
    if joins_rows(engine):
        yield (
            f"the engine {engine} joins rows, so nothing shows which records the table lacks: replays, retries of dead "
            "letters and going on without the state are refused (one row a key, with all of these: mode upsert)"
        )


def computes_values(engine: str) -> bool:
    """Whether an engine joins rows to one with values of several records."""
    return re.search(_COMPUTING, engine) is not None


def removes_old_rows(engine_full: str) -> bool:
    """Whether the table's TTL removes rows, and does not only move or recompress them."""
    found = re.search(r" TTL (.*?)(?: SETTINGS |$)", engine_full, re.DOTALL)
    rules = re.split(r",(?![^(]*\))", found[1]) if found else []
    return any(not re.search(r"\b(TO (DISK|VOLUME)|RECOMPRESS)\b", rule) for rule in rules)


@dataclass(frozen=True)
class Present:
    """A table as it is.

    Attributes:
        id: the table's UUID; a recreated table has another.
        rows: their number; None: the engine does not know it, such as `Distributed` (`row_count` asks then).
        types: by column name, as the server spells them; of columns that take values.
        sorting_columns: the columns of its sorting key.
        views: materialized views that read its inserts, as (database, name).
        computed: what the other columns are, by name: `MATERIALIZED toDate(at)`.
    """

    id: str
    engine: str
    engine_full: str
    statement: str
    rows: int | None
    types: dict[str, str]
    partition_columns: frozenset[str]
    sorting_columns: frozenset[str]
    sorting_key: str
    partitioned: bool
    views: tuple[tuple[str, str], ...]
    computed: Mapping[str, str] = field(default_factory=dict)


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
        return {**version, **({DELETED: "UInt8"} if self.table.mode == "upsert_delete" else {})}

    @property
    def origin(self) -> dict[str, str]:
        """Columns that distinguish steps, and records of a recreated topic from those of its predecessor.

        They are materialized, so that `SELECT *` omits them. Tables of upserts have versions instead.
        """
        is_ours = not self.versioned and "MergeTree" in self.engine
        return {TOPIC_ID: "LowCardinality(String)", STEP: "UInt64"} if is_ours else {}

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
        replicated = "Replicated" in self.engine or "Shared" in self.engine
        window: dict[str, str | int] = {"non_replicated_deduplication_window": self.window}
        if replicated:
            window = {
                "replicated_deduplication_window": self.window,
                "replicated_deduplication_window_seconds": _WINDOW_SECONDS,
            }
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


def describe(server: ClickHouseServer, path: Sequence[str]) -> Present | None:
    """The table as it is now; None if it does not exist."""
    asked = {"database": path[0], "table": path[1]}
    found = server.rows(render("clickhouse", "table_describe"), asked)
    if not found:
        return None
    row = found[0]
    # Ours are materialized too, but inserts give them their values.
    computed = {
        name: f"{kind} {expression}"
        for name, _, _, _, kind, expression in row["columns"]
        if kind in ("ALIAS", "MATERIALIZED") and name not in (TOPIC_ID, STEP)
    }
    return Present(
        id=row["id"],
        engine=row["engine"],
        engine_full=row["engine_full"],
        statement=row["statement"],
        rows=row["rows"],
        types={name: kind for name, kind, *_ in row["columns"] if name not in computed},
        partition_columns=frozenset(name for name, _, partitions, *_ in row["columns"] if partitions),
        sorting_columns=frozenset(name for name, _, _, sorts, *_ in row["columns"] if sorts),
        sorting_key=row["sorting_key"],
        partitioned=bool(row["partition_key"]),
        views=tuple((database, name) for database, name in row["views"]),
        computed=computed,
    )


def row_count(server: ClickHouseServer, path: Sequence[str], present: Present) -> int:
    """The number of stored rows, with replaced versions."""
    if present.rows is not None:
        return present.rows
    return int(server.rows(render("clickhouse", "count_rows", table=path, final=False))[0]["rows"])


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
        columns={**{c.name: c.type for c in layout.columns}, **layout.added, **_with_defaults(layout.origin, {})},
        indexed=not layout.versioned and "_offset" not in layout.order_by,
        engine=layout.engine,
        partition_by=layout.table.partition_by,
        order_by=layout.order_by,
        ttl=layout.table.ttl,
        settings=layout.settings,
    )


def plan_changes(server: ClickHouseServer, layout: Layout, present: Present) -> list[SchemaChange]:
    """The schema changes after which the declared rows fit into the table.

    Raises:
        SchemaRefused: a change that no rule allows; before anything is written.
    """
    where = f"clickhouse {layout.table.table}"
    computed = [f"{c.name} is {present.computed[c.name]}" for c in layout.columns if c.name in present.computed]
    if computed:
        raise SchemaRefused(
            f"the table computes columns of the file, so they take no values: {', '.join(computed)}",
            where=where,
            remedy="give the field another name or leave it out (`source.value.rename`, `exclude`), or rename the "
            "table's column by hand",
        )
    wanted_types = {c.name: c.type for c in layout.columns}
    if any(present.types.get(name) != kind for name, kind in wanted_types.items()):
        wanted_types = _spelled(server, wanted_types)
    there: list[pa.Field] = []
    for column in layout.columns:
        found = present.types.get(column.name)
        if found is None:
            continue
        if found == wanted_types[column.name]:
            there.append(pa.field(column.name, column.arrow, column.nullable))
            continue
        declared = None if column.declared else arrow_type(found)
        if declared is None:
            raise SchemaRefused(
                f"column {column.name} is {found} in the table and {column.type} in the file",
                where=where,
                remedy="declare the column, and name the table's type in `column_types`; or change the table by hand",
            )
        kind, nullable = declared
        there.append(pa.field(column.name, declared_part(kind, column.arrow), nullable))
    wanted = pa.schema([pa.field(c.name, c.arrow, c.nullable) for c in layout.columns])
    changes = plan_evolution(where, pa.schema(there), wanted, layout.table.evolve)
    kept = present.sorting_columns | present.partition_columns
    fixed = [str(c) for c in changes if c.path[0] in kept and not _is_new(c)]
    if fixed:
        as_it_is = "declare the column as it is"
        if layout.table.deletes_are_rows:
            as_it_is = "name it in `changes.key`, since `deletes: rows` makes all other columns optional"
        raise SchemaRefused(
            f"{'; '.join(fixed)}: ClickHouse does not change columns of the sorting and partition keys",
            where=where,
            remedy=f"make a new table, or {as_it_is}",
        )
    return changes


def apply_changes(server: ClickHouseServer, layout: Layout, present: Present, changes: Sequence[SchemaChange]) -> None:
    """Changes the table's columns in one statement, and waits until it is done."""
    by_name = {c.name: c for c in layout.columns}
    verbs: dict[str, tuple[str, str, str]] = {}
    for change in changes:
        column = by_name[change.path[0]]
        if _is_new(change):
            # Nullable, so that existing rows get null and not a default that looks like a value.
            kind = column.type if column.declared else clickhouse_type(column.arrow, True)
            verbs[column.name] = ("ADD COLUMN IF NOT EXISTS", column.name, kind)
        else:
            verbs[column.name] = ("MODIFY COLUMN", column.name, _changed(column, present.types[column.name]))
    if verbs:
        sql = render(
            "clickhouse", "table_change", table=layout.path, cluster=layout.cluster, changes=list(verbs.values())
        )
        server.execute(sql, settings={"mutations_sync": 1, "alter_sync": 2, "flatten_nested": 0})


def _is_new(change: SchemaChange) -> bool:
    return isinstance(change, AddColumn) and len(change.path) == 1


def _changed(column: Column, found: str) -> str:
    """The type that holds the column's values and the existing ones; struct fields that the file lacks are kept."""
    there = arrow_type(found)
    if there is None or not pa.types.is_nested(there[0]):
        return column.type
    return clickhouse_type(evolved(there[0], column.arrow), column.nullable)


def missing_origin(layout: Layout, present: Present) -> list[str]:
    """Columns of `Layout.origin` that a table lacks, because somebody else created it."""
    if "MergeTree" not in present.engine:
        return []
    return [name for name in layout.origin if name not in present.types]


def add_origin(server: ClickHouseServer, layout: Layout, names: Sequence[str], topic_ids: Mapping[str, str]) -> None:
    """Adds columns of `Layout.origin`; existing rows are of the topics with these ids."""
    kinds = _with_defaults({name: layout.origin[name] for name in names}, topic_ids)
    changes = [("ADD COLUMN IF NOT EXISTS", name, kind) for name, kind in kinds.items()]
    sql = render("clickhouse", "table_change", table=layout.path, cluster=layout.cluster, changes=changes)
    server.execute(sql, settings={"mutations_sync": 1, "alter_sync": 2})


def _with_defaults(origin: Mapping[str, str], topic_ids: Mapping[str, str]) -> dict[str, str]:
    """The columns' types with defaults for rows that were written without them."""
    topics, ids = (", ".join(map(literal, texts)) for texts in (topic_ids, topic_ids.values()))
    known = f"transform(`_topic`, [{topics}], [{ids}], '')" if topic_ids else "''"
    defaults = {TOPIC_ID: known, STEP: "0"}
    return {name: f"{kind} MATERIALIZED {defaults[name]}" for name, kind in origin.items()}


def _spelled(server: ClickHouseServer, types: dict[str, str]) -> dict[str, str]:
    """The server's own spelling of types: `INT` is `Int32`."""
    structure = ", ".join(f"c{n} {kind}" for n, kind in enumerate(types.values()))
    found = server.rows(render("clickhouse", "types_describe", structure=structure))
    return dict(zip(types, (row["type"] for row in found), strict=True))
