"""The columns of tables that a connector has filled, as a pipeline file declares them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jobs.iceberg.schema import arrow_schema
from jobs.schema.types import type_name
from resources.clickhouse import ClickHouseServer
from resources.errors import ConfigurationError
from resources.iceberg import IcebergCatalog
from sql import render

_CLICKHOUSE = {
    **dict.fromkeys(["Int8", "Int16", "Int32", "UInt8", "UInt16"], "int"),
    **dict.fromkeys(["Int64", "UInt32"], "long"),
    "UInt64": "decimal(20,0)",
    "Float32": "float",
    "Float64": "double",
    "Bool": "boolean",
    "Date": "date",
    "Date32": "date",
    "DateTime": "timestamp",
    "DateTime64": "timestamp",
}


def of_iceberg(catalog: IcebergCatalog, table: str) -> dict[str, str]:
    """Columns of an Iceberg table; those of types that cannot be declared are left out. Empty: no such table."""
    found = catalog.load(table)
    columns = {}
    for field in arrow_schema(found) if found else ():
        try:
            columns[field.name] = type_name(field.type) + ("" if field.nullable else " not null")
        except ConfigurationError:
            continue
    return columns


def of_clickhouse(server: ClickHouseServer, table: str) -> dict[str, str]:
    """Columns of a ClickHouse table, what is no simple type as string. Empty: no such table."""
    database, name = table.split(".", 1)
    rows = server.rows(render("clickhouse", "table_columns"), {"database": database, "table": name})
    return {row["name"]: clickhouse_type(row["type"]) for row in rows}


def clickhouse_type(text: str) -> str:
    """The type of a pipeline file that holds this type's values."""
    wrapped = re.fullmatch(r"(?:Nullable|LowCardinality)\((.*)\)", text)
    if wrapped:
        return clickhouse_type(wrapped[1])
    if array := re.fullmatch(r"Array\((.*)\)", text):
        return f"array<{clickhouse_type(array[1])}>"
    if decimal := re.fullmatch(r"Decimal\((\d+),\s*(\d+)\)", text):
        return f"decimal({decimal[1]},{decimal[2]})" if int(decimal[1]) <= 38 else "string"
    return _CLICKHOUSE.get(text.split("(", maxsplit=1)[0], "string")


def all_of(tables: list[Mapping[str, str]]) -> dict[str, str]:
    """The columns of several tables together; where they differ in type, the first one's."""
    found: dict[str, str] = {}
    for table in tables:
        for name, kind in table.items():
            found.setdefault(name, kind)
    return found
