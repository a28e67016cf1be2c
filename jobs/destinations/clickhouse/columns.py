"""How columns of a row become columns of a ClickHouse table: the type, the type on the wire, the conversion.

=======================  ========================  =====================================================
declared                 ClickHouse                 note
=======================  ========================  =====================================================
boolean, int, long       Bool, Int32, Int64
float, double            Float32, Float64
decimal(p,s)             Decimal(p, s)
string, binary           String
date                     Date32                    1900 to 2299
timestamp(_ntz)          DateTime64(6, 'UTC')      1900 to 2299
array, map, struct       Array, Map, Tuple         cannot be null themselves
any, optional            Nullable(…)               except arrays, maps and structs
=======================  ========================  =====================================================

`column_types` may name any other type. The server converts to it with `accurateCast`, which refuses values that do not
fit. Where that would change a value silently (tried on 26.9: decimals lose digits, dates wrap, big integers in text
overflow), the value is converted back and must be equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from jobs.spec.columns import RowColumn
from sql import quote

SCALARS = {
    pa.bool_(): "Bool",
    pa.int32(): "Int32",
    pa.int64(): "Int64",
    pa.float32(): "Float32",
    pa.float64(): "Float64",
    pa.string(): "String",
    pa.binary(): "String",
    pa.date32(): "Date32",
    pa.timestamp("us", "UTC"): "DateTime64(6, 'UTC')",
    pa.timestamp("us"): "DateTime64(6, 'UTC')",
}
ARROW = {name: kind for kind, name in reversed(SCALARS.items())}


@dataclass(frozen=True)
class Column:
    """One column of the table.

    Attributes:
        type: in the table.
        wire: in which values are sent: the ClickHouse type of the declared type.
        arrow: the declared type.
        check: how a conversion is proved exact: no check needed, `back` to the wire type, or a rule for text. Keys are
            always checked, so that two keys do not become one.
        declared: the file names the type (`column_types`), so values are converted.
    """

    name: str
    type: str
    wire: str
    arrow: pa.DataType
    nullable: bool
    is_key: bool
    declared: bool = False
    check: str = ""

    @property
    def as_json(self) -> bool:
        """Whether the server makes JSON text of the value first: for JSON columns, of all declared types but string."""
        return bool(self.declared and bare(self.type).startswith("JSON") and not pa.types.is_string(self.arrow))


def table_column(column: RowColumn, types: dict[str, str]) -> Column:
    """The table's column for a row's column."""
    plain = clickhouse_type(column.type, column.nullable)
    declared = types.get(column.name)
    if declared is None:
        return Column(column.name, plain, plain, column.type, column.nullable, column.is_key)
    check = _check(column.type, bare(declared), column.is_key)
    return Column(column.name, declared, plain, column.type, column.nullable, column.is_key, True, check)


def clickhouse_type(kind: pa.DataType, nullable: bool) -> str:
    """The type for a declared type."""
    if pa.types.is_list(kind):
        return f"Array({clickhouse_type(kind.value_type, kind.value_field.nullable)})"
    if pa.types.is_map(kind):
        value = clickhouse_type(kind.item_type, kind.item_field.nullable)
        return f"Map({clickhouse_type(kind.key_type, False)}, {value})"
    if pa.types.is_struct(kind):
        return f"Tuple({', '.join(f'{_name(f.name)} {clickhouse_type(f.type, f.nullable)}' for f in kind)})"
    name = f"Decimal({kind.precision}, {kind.scale})" if pa.types.is_decimal(kind) else SCALARS[kind]
    return f"Nullable({name})" if nullable else name


def _name(field: str) -> str:
    return field if re.fullmatch(r"[A-Za-z_]\w*", field) else quote("clickhouse", field)


def bare(name: str) -> str:
    """The type inside Nullable and LowCardinality."""
    found = re.fullmatch(r"\s*(?:Nullable|LowCardinality)\((.*)\)\s*", name, re.DOTALL)
    return bare(found[1]) if found else name.strip()


def _check(source: pa.DataType, target: str, is_key: bool) -> str:
    if pa.types.is_string(source) or pa.types.is_binary(source):
        known = {r"U?Int\d": "integer text", r"Decimal": "decimal text", r"Date": "time text"}
        # Different texts may be the same UUID, address or number: as keys they would become one row.
        otherwise = "text" if is_key and target != "String" else ""
        return next((check for pattern, check in known.items() if re.match(pattern, target)), otherwise)
    if is_key and target != "String":
        return "back"
    # Text can hold every value; accurateCast itself checks floats (and NaN does not equal itself).
    if re.match(r"String|Float|BFloat|JSON|Variant|Dynamic", target) or re.search(r"JSON|Variant|Float", target):
        return ""
    return "back"
