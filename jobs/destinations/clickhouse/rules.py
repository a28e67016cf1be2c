"""What ClickHouse cannot do with the columns that a pipeline file declares."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from jobs.destinations.clickhouse.columns import is_text
from jobs.destinations.clickhouse.named_types import parts
from jobs.destinations.clickhouse.replacing import replaces
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.clickhouse.wanted_table import Layout, layout_of
from jobs.schema.found_fields import field_paths, shown
from jobs.schema.types import has_map, type_name
from jobs.spec.pipeline import PipelineSpec
from resources.config_files.mistakes import Mistake

_COLLECTIONS = {"Array": "array<…>", "Nested": "array<struct<…>>", "Map": "map<…>", "Tuple": "struct<…>"}


def mistakes(spec: PipelineSpec, table: ClickHouseTable) -> Iterator[Mistake]:
    """The mistakes, each with its path below the table's entry."""
    layout = layout_of(spec, table)
    types = {column.name: column.arrow for column in layout.columns}
    for name in (*layout.added, *layout.origin):
        if name in types:
            yield Mistake((), f"{name} is a column that we add to the table", "rename yours in a transform")
    for path in sorted(field_paths(pa.field(name, kind) for name, kind in types.items())):
        if len(path) > 1 and path[-1] == "null":
            what = f"{shown(path)} has a name that ClickHouse keeps for itself inside a Tuple"
            yield Mistake((), what, "rename it in `source.value.rename`")
    for number, name in enumerate(table.order_by):
        if name in types and has_map(types[name]):
            what = f"{name} is {type_name(types[name])}, by which ClickHouse cannot sort"
            yield Mistake(("order_by", number), what, "name columns without maps")
    for column in layout.columns:
        if column.declared and is_text(column.arrow) and (kind := parts(column.bare)[0]) in _COLLECTIONS:
            what = f"{column.name} is text, which ClickHouse reads as {kind} without a check of what it contains"
            remedy = f"declare it as {_COLLECTIONS[kind]}; text can be parsed in `source.transform` (from_json)"
            yield Mistake(("column_types", column.name), what, remedy)
    if table.ttl:
        yield from _expiry(layout, table.ttl)
    if layout.versioned:
        yield from _keyed(layout, spec)


def _expiry(layout: Layout, ttl: str) -> Iterator[Mistake]:
    # Imported here: an SQL parser that most files do not need.
    from jobs.destinations.clickhouse.expressions import times_of_ttl

    optional = {column.name for column in layout.columns if column.type.startswith("Nullable")}
    if may_be_null := [name for name in times_of_ttl(ttl) if name in optional]:
        what = f"{', '.join(may_be_null)} may be null, and ClickHouse lets no row expire by such a column"
        yield Mistake(("ttl",), what, f"write ifNull({may_be_null[0]}, …), or declare the column as `not null`")


def _keyed(layout: Layout, spec: PipelineSpec) -> Iterator[Mistake]:
    """All versions of a row must have one sorting key, partition and endpoint, and the last one has to win."""
    table, keys = layout.table, layout.keys
    known = {column.name for column in layout.columns}
    if keys and known.issuperset(layout.order_by) and set(layout.order_by) != set(keys):
        what = f"rows with the same {', '.join(layout.order_by)} would be one row"
        yield Mistake(("order_by",), what, f"name exactly the key columns, in any order: {', '.join(keys)}")
    words = re.findall(r"\w+", table.partition_by or "")
    for option, used in (("partition_by", words), ("shard_by", table.shard_by)):
        if moving := [c.name for c in layout.columns if c.name in used and not c.is_key]:
            what = f"{', '.join(moving)} may change while the key stays, and the versions of a row would be apart"
            yield Mistake((option,), what, f"use key columns only: {', '.join(keys)}")
    if not replaces(layout, layout.engine):
        by = ", ".join(layout.added)
        remedy = (
            f"use ReplacingMergeTree or ReplicatedReplacingMergeTree, whose arguments, if you give any, end with {by}; "
            "or the mode append"
        )
        yield Mistake(("engine",), f"{table.engine} does not replace rows by {by}", remedy)
    order = next((c for c in layout.columns if c.name == spec.changes.ordered_by), None)
    if order and not _has_integer_order(order.arrow):
        what = f"`changes.order_by` names {order.name}, and a version in ClickHouse is an integer"
        yield Mistake((), what, "name an int, long, date or timestamp column")


def _has_integer_order(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))
