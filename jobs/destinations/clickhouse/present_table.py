"""The ClickHouse table as it is, and how it is adapted to the one that the pipeline file describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.destinations.clickhouse.columns import Column, clickhouse_type
from jobs.destinations.clickhouse.named_types import bare, holds_null
from jobs.destinations.clickhouse.present_types import declared_field, like_declared, stored_type, without_own_fields
from jobs.destinations.clickhouse.wanted_table import STEP, TOPIC_ID, Layout, with_defaults
from jobs.evolution import AddColumn, SchemaChange, evolved, plan_evolution
from resources.errors import SchemaRefused, TerminalError
from sql import render

if TYPE_CHECKING:
    from resources.clickhouse import ClickHouseServer

_ADD = "ADD COLUMN IF NOT EXISTS"


@dataclass(frozen=True)
class Present:
    """A table as it is.

    Attributes:
        id: the table's UUID; a recreated table has another.
        rows: their number; None: the engine does not know it, such as `Distributed` (`Shard.row_count` asks then).
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


def plan_changes(server: ClickHouseServer, layout: Layout, present: Present) -> list[SchemaChange]:
    """The schema changes after which the declared rows fit into the table.

    Raises:
        SchemaRefused: a change that no rule allows; before anything is written.
    """
    where = f"clickhouse {layout.table.table}"
    _require_values_taken(layout, present, where)
    there = pa.schema(_declared_fields(server, layout, present, where))
    wanted = pa.schema([pa.field(c.name, c.arrow, c.nullable) for c in layout.columns])
    changes = plan_evolution(where, there, wanted, layout.table.evolve)
    _require_keys_kept(layout, present, changes, where)
    return changes


def _require_values_taken(layout: Layout, present: Present, where: str) -> None:
    """Refuses columns of the file for which the table takes no values."""
    computed = [f"{c.name} is {present.computed[c.name]}" for c in layout.columns if c.name in present.computed]
    if computed:
        raise SchemaRefused(
            f"the table computes columns of the file, so they take no values: {', '.join(computed)}",
            where=where,
            remedy="give the field another name or leave it out (`source.value.rename`, `exclude`), or rename the "
            "table's column by hand",
        )
    flat = {c.name: [name for name in present.types if name.startswith(f"{c.name}.")] for c in layout.columns}
    if nested := {name: parts for name, parts in flat.items() if parts and name not in present.types}:
        name, parts = next(iter(nested.items()))
        raise SchemaRefused(
            f"column {name} is Nested in the table, as {', '.join(parts)}, and one column in the file",
            where=where,
            remedy="make the table with `flatten_nested = 0`, or give it these columns one by one (`source.transform`)",
        )


def _declared_fields(server: ClickHouseServer, layout: Layout, present: Present, where: str) -> list[pa.Field]:
    """The columns of the file that the table has, as fields that are declared like the table's types."""
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
        if column.own and bare(found) == column.bare:
            there.append(pa.field(column.name, column.arrow, holds_null(found)))
            continue
        declared = None if column.declared else declared_field(found)
        if declared is None:
            raise SchemaRefused(
                f"column {column.name} is {found} in the table and {column.type} in the file",
                where=where,
                remedy="declare the column, and name the table's type in `column_types`; or change the table by hand",
            )
        kind = like_declared(without_own_fields(declared.type, column.arrow), column.arrow)
        there.append(pa.field(column.name, kind, declared.nullable))
    return there


def _require_keys_kept(layout: Layout, present: Present, changes: Sequence[SchemaChange], where: str) -> None:
    """Refuses changes that ClickHouse cannot make."""
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


def apply_changes(server: ClickHouseServer, layout: Layout, present: Present, changes: Sequence[SchemaChange]) -> None:
    """Changes the table's columns in one statement, and waits until it is done.

    Raises:
        SchemaRefused: ClickHouse refuses it.
    """
    by_name = {c.name: c for c in layout.columns}
    changed: dict[str, tuple[str, str]] = {}
    for change in changes:
        column = by_name[change.path[0]]
        if _is_new(change):
            # Nullable, so that existing rows get null and not a default that looks like a value.
            kind = column.type if column.declared else clickhouse_type(column.arrow, True)
            kind = f"Nullable({kind})" if column.own and not column.holds_null else kind
            changed[column.name] = _ADD, kind
        else:
            changed[column.name] = "MODIFY COLUMN", _changed(column, present.types[column.name])
    if not changed:
        return
    try:
        _change(server, layout, changed)
    except TerminalError as problem:
        if type(problem) is not TerminalError:  # a missing right has its own remedy
            raise
        raise SchemaRefused(
            f"{'; '.join(map(str, changes))}: {problem.what}",
            where=f"clickhouse {layout.table.table}",
            remedy="something in the table may depend on the column (a projection, an index, another column's "
            "expression): change the column by hand, or undo the change of the file",
        ) from None


def _is_new(change: SchemaChange) -> bool:
    return isinstance(change, AddColumn) and len(change.path) == 1


def _changed(column: Column, found: str) -> str:
    """The type that holds the column's values and the existing ones; struct fields that the file lacks are kept."""
    before, stored = stored_type(found)
    if before:
        return f"{before}{_changed(column, stored)})"
    there = declared_field(found)
    assert there is not None, "a change is planned only of columns whose type has a declared one"
    return clickhouse_type(evolved(there.type, column.arrow), column.nullable or there.nullable)


def missing_origin(layout: Layout, present: Present) -> list[str]:
    """Columns of `Layout.origin` that a table lacks, because somebody else created it."""
    if "MergeTree" not in present.engine:
        return []
    return [name for name in layout.origin if name not in present.types]


def add_origin(server: ClickHouseServer, layout: Layout, names: Sequence[str], topic_ids: Mapping[str, str]) -> None:
    """Adds columns of `Layout.origin`; existing rows are of the topics with these ids."""
    kinds = with_defaults({name: layout.origin[name] for name in names}, topic_ids)
    _change(server, layout, {name: (_ADD, kind) for name, kind in kinds.items()})


def _change(server: ClickHouseServer, layout: Layout, changes: Mapping[str, tuple[str, str]]) -> None:
    """Changes columns, by name with the verb and the type."""
    sql = render("clickhouse", "table_change", table=layout.path, cluster=layout.cluster, changes=changes)
    server.execute(sql, settings={"mutations_sync": 1, "alter_sync": 2, "flatten_nested": 0})


def _spelled(server: ClickHouseServer, types: dict[str, str]) -> dict[str, str]:
    """The server's own spelling of types: `INT` is `Int32`."""
    structure = ", ".join(f"c{n} {kind}" for n, kind in enumerate(types.values()))
    found = server.rows(render("clickhouse", "types_describe", structure=structure))
    return dict(zip(types, (row["type"] for row in found), strict=True))
