"""Existing tables of the ClickHouse sink, which a pipeline continues."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pyarrow as pa

from jobs.connect_import.known import NOT_NULL, KnownTable
from jobs.destinations.clickhouse.columns import clickhouse_type
from jobs.destinations.clickhouse.engines import engine_warnings
from jobs.destinations.clickhouse.named_types import parts
from jobs.destinations.clickhouse.present_table import describe
from jobs.destinations.clickhouse.present_types import declared_field
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.clickhouse.window import DeduplicationWindow, for_new_table, windows
from jobs.schema.types import field_text, parse_columns
from jobs.spec.pipeline import BatchBounds
from resources.clickhouse import ClickHouseServer
from sql import quote, render

_SCALARS = {
    **dict.fromkeys(["Int8", "Int16", "Int32", "UInt8", "UInt16"], "int"),
    **dict.fromkeys(["Int64", "UInt32"], "long"),
    "UInt64": "decimal(20,0)",
    **dict.fromkeys(["Float32", "BFloat16"], "float"),
    "Float64": "double",
    "Bool": "boolean",
    **dict.fromkeys(["Date", "Date32"], "date"),
    **dict.fromkeys(["DateTime", "DateTime64"], "timestamp"),
    **dict.fromkeys(["String", "FixedString", "UUID", "IPv4", "IPv6", "Enum8", "Enum16"], "string"),
    # Numbers that no declared type can hold, and JSON: they are sent as text.
    **dict.fromkeys(["Int128", "UInt128", "Int256", "UInt256", "JSON"], "text"),
}
_MOST_DIGITS = 38
_UTC = ("UTC", "Etc/UTC", "GMT", "Etc/GMT")
_COORDINATES = ("_topic", "_partition", "_offset")


def known(server: ClickHouseServer, table: str) -> KnownTable | None:
    """The table of this name; None: there is none."""
    path = ClickHouseTable.path_of(table)
    present = describe(server, path)
    if present is None:
        return None
    columns, native, todo, zone = dict[str, str](), dict[str, str](), list[str](), ""
    for row in server.rows(render("clickhouse", "table_columns"), {"database": path[0], "table": path[1]}):
        name, kind, declared, zone = row["name"], row["type"], declared_type(row["type"]), row["zone"]
        if name in _COORDINATES or row["default_kind"] in ("MATERIALIZED", "ALIAS", "EPHEMERAL"):
            continue
        if row["default_kind"]:
            todo.append(f"{name} is left to its default; declare it where the records have it")
        elif declared is None:
            todo.append(f"{name} is {kind}, which no column of a pipeline file becomes: it gets no values any more")
        else:
            columns[name], native[name] = declared, kind
    lacks_ours = not present.types.keys() >= {*_COORDINATES}
    if lacks_ours:
        todo.append("the first run adds _topic, _partition and _offset, by which append tables tell rows apart (empty "
                    "in the rows that are there)")  # fmt: skip
    todo += [
        *engine_warnings(present.engine),
        *_values(columns, native),
        *(_more(window) for window in windows(server, path, present)),
    ]
    collections = any("<" in kind for kind in columns.values())
    options = {"null_collections": "empty"} if collections else {}
    lines = [f"{table}: {line}" for line in todo if line]
    named = {column.name for column in parse_columns(columns) if native[column.name] != usual(column)}
    fixed = present.sorting_columns | present.partition_columns | named
    zones = _zones(native, zone)
    return KnownTable(
        columns, native, usual, fixed=fixed, options=options, zones=zones, lacks_ours=lacks_ours, todo=lines
    )


def declared_type(text: str) -> str | None:
    """A pipeline file's type for a column of this type, with `not null`; None: there is none."""
    found = declared_field(text, _scalar)
    return None if found is None else field_text(found)


def _scalar(text: str) -> pa.Field | None:
    """The declared type whose values a column of this type takes, also if ours would have another."""
    name, arguments = parts(text)
    if name == "Nullable":
        inner = declared_field(arguments[0], _scalar)
        return None if inner is None else inner.with_nullable(True)
    kind = _SCALARS.get(name)
    if name == "Decimal":
        kind = f"decimal({arguments[0]},{arguments[1]})" if int(arguments[0]) <= _MOST_DIGITS else "text"
    return parse_columns({"": kind + NOT_NULL}).field(0) if kind else None


def usual(column: pa.Field) -> str:
    """The table's type for a declared column, unless `column_types` names another."""
    return clickhouse_type(column.type, column.nullable)


def _values(columns: Mapping[str, str], native: Mapping[str, str]) -> Iterator[str]:
    """Notes about values that the sink treated differently."""
    if required := [name for name, kind in columns.items() if kind.endswith(NOT_NULL)]:
        yield (f"records without {', '.join(required)} are dead letters, where the sink stored the type's default; "
               "coalesce them in source.transform to go on so")  # fmt: skip
    times = {name: kind for name, kind in native.items() if "DateTime" in kind}
    if coarse := [n for n, kind in times.items() if not re.search(r"DateTime64\([6-9]", kind)]:
        kinds = ", ".join(f"{name} ({times[name]})" for name in coarse)
        yield f"times finer than {kinds} are dead letters, where the sink cut them; date_trunc them in source.transform"


def _zones(native: Mapping[str, str], of_server: str) -> dict[str, str]:
    """The zones other than UTC in which the server reads times without one."""
    times = {name: re.search(r"DateTime(?:64)?\b(?:\([^')]*(?:'([^']+)')?\))?", kind) for name, kind in native.items()}
    zones = {name: found[1] or of_server for name, found in times.items() if found}
    return {name: zone for name, zone in zones.items() if zone not in _UTC}


def _more(window: DeduplicationWindow) -> str:
    """The setting that makes the table's deduplication window large enough for a batch; empty if it is."""
    bounds, options = BatchBounds(), ClickHouseTable.model_fields
    wanted = for_new_table(bounds.max_records, options["chunk_rows"].default, window.partitions)
    if window.parts is None or window.parts >= wanted:
        return ""
    name = quote("clickhouse", ClickHouseTable.path_of(window.table.partition(",")[0]))
    return f"let it know an insert that is done again: ALTER TABLE {name} MODIFY SETTING {window.setting} = {wanted}"
