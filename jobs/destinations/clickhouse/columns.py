"""How columns of a row become columns of a ClickHouse table: the type, the type on the wire, the conversion.

=======================  ========================  =====================================================
declared                 ClickHouse                 note
=======================  ========================  =====================================================
boolean, int, long       Bool, Int32, Int64
float, double            Float32, Float64
decimal(p,s)             Decimal(p, s)
string, binary           String
uuid, time               UUID, Time64(6)           String inside arrays, maps and structs
fixed(n)                 FixedString(n)            String inside arrays, maps and structs
date                     Date32                    1900 to 2299
timestamp(_ntz)          DateTime64(6, 'UTC')      1900 to 2299
array, map, struct       Array, Map, Tuple         cannot be null themselves
any, optional            Nullable(…)               except arrays, maps and structs
=======================  ========================  =====================================================

`column_types` may name any other type. The server converts to it, and to UUID, Time64 and FixedString, with
`accurateCast`, which refuses values that do not fit. Where that would change a value silently (tried on 26.9: decimals
lose digits, dates wrap, big integers in text overflow, text that does not fit a Nullable type becomes null), the value
is converted back and must be equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from jobs.destinations.clickhouse.named_types import bare, fields, holds_null, parts
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
# Types for text of a form (`jobs.schema.types.own_type`).
OWN = {"UUID": pa.uuid(), "Time64(6)": pa.time64("us")}
ARROW = {name: kind for kind, name in reversed(SCALARS.items())}


@dataclass(frozen=True)
class Column:
    """One column of the table.

    Attributes:
        type: in the table.
        wire: in which values are sent: the ClickHouse type of the declared type.
        arrow: the declared type.
        check: how a conversion is proved exact: no check needed, `back` to the declared type (arrays, maps and structs
            `back as text`), a rule for text, or only that it is `not null`. Keys are always checked, so that two keys
            do not become one.
        compared: the type in which `back` compares: the declared one, without fields that cannot be compared.
        declared: the file names the type (`column_types`), or it is `own`, so values are converted.
        own: it is the type for text or bytes of a form (`jobs.schema.types.own_type`).
    """

    name: str
    type: str
    wire: str
    arrow: pa.DataType
    nullable: bool
    is_key: bool
    declared: bool = False
    check: str = ""
    compared: str = ""
    own: bool = False

    @property
    def bare(self) -> str:
        """The type inside Nullable and LowCardinality."""
        return bare(self.type)

    @property
    def holds_null(self) -> bool:
        return holds_null(self.type)

    @property
    def is_bytes(self) -> bool:
        """Whether the column has bytes as they are declared; text of them might be no UTF-8."""
        return bool(pa.types.is_binary(self.arrow)) and self.bare.startswith(("String", "FixedString"))

    @property
    def enum_names(self) -> list[str]:
        """The names of an enum that is made of text, as literals; of other types none."""
        is_enum = is_text(self.arrow) and self.bare.startswith("Enum")
        return re.findall(r"'(?:[^'\\]|\\.|'')*'", self.type) if is_enum else []

    @property
    def as_json(self) -> bool:
        """Whether the server makes JSON text of the value first: for JSON columns, of all declared types but string."""
        return bool(self.declared and self.bare.startswith("JSON") and not pa.types.is_string(self.arrow))


def table_column(column: RowColumn, types: dict[str, str]) -> Column:
    """The table's column for a row's column."""
    plain = clickhouse_type(column.type, column.nullable)
    own = _own_type(column) if column.name not in types else None
    declared = types.get(column.name, own)
    if declared is None:
        return Column(column.name, plain, plain, column.type, column.nullable, column.is_key)
    check, kind = _check(column.type, bare(declared), column.is_key), column.type
    if own and pa.types.is_binary(kind):
        check = ""  # all have the type's length, and as text they would lose null bytes at their end
    if check == "back" and pa.types.is_nested(column.type):
        kind = _comparable(column.type, declared)
        check = "back as text" if kind is not None else ""
    # A text that does not fit becomes null; other values that do not fit are errors.
    if not check and is_text(column.type) and bare(declared) != "String" and holds_null(declared):
        check = "not null"
    compared = clickhouse_type(kind, True) if check.startswith("back") else ""
    options = column.type, column.nullable, column.is_key, True, check, compared, own is not None
    return Column(column.name, declared, plain, *options)


def _own_type(column: RowColumn) -> str | None:
    """The type for text and bytes of a form (`jobs.schema.types.own_type`); None for others, and inside of them."""
    if column.own is None or pa.types.is_nested(column.own):
        return None
    is_fixed = pa.types.is_fixed_size_binary(column.own)
    of_text = next((name for name, kind in OWN.items() if kind == column.own), "")
    name = f"FixedString({column.own.byte_width})" if is_fixed else of_text
    return f"Nullable({name})" if column.nullable else name


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
    return field if re.fullmatch(r"[A-Za-z_]\w*", field, re.ASCII) else quote("clickhouse", field)


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


# Of names of types, without what is inside.
_FLOAT, _UNCOMPARED = "B?Float", "JSON|Variant|Dynamic"
_TEXT_CHECKS = {
    r"U?Int\d": "integer text",
    r"Decimal": "decimal text",
    r"Date|Time": "time text",
    r"Enum|Variant": "text",
}


def _check(source: pa.DataType, target: str, is_key: bool) -> str:
    if is_text(source):
        # Different texts may be the same UUID, address or number: as keys they would become one row.
        otherwise = "text" if is_key and target != "String" else ""
        if not otherwise and re.match(_FLOAT, target):
            return "float text"
        return next((check for pattern, check in _TEXT_CHECKS.items() if re.match(pattern, target)), otherwise)
    if is_key and target != "String":
        return "back"
    # Text can hold every value; accurateCast itself checks floats (and NaN does not equal itself).
    return "" if re.match(rf"String|{_UNCOMPARED}|{_FLOAT}", target) else "back"


def _comparable(kind: pa.DataType, target: str) -> pa.DataType | None:
    """What of values can be converted back from the named type and be compared: not JSON and the like, which have no
    one text, and not decimals as floats, which are near. None: nothing."""
    target = bare(target)
    outer, arguments = parts(target)
    if outer == "Variant" and is_text(kind):
        return kind
    if re.match(_UNCOMPARED, outer) or (pa.types.is_decimal(kind) and re.match(_FLOAT, outer)):
        return None
    if pa.types.is_list(kind) and outer in ("Array", "Nested"):
        inside = ", ".join(arguments)
        part = _comparable(kind.value_type, inside if outer == "Array" else f"Tuple({inside})")
        return None if part is None else pa.list_(kind.value_field.with_type(part))
    if pa.types.is_map(kind) and outer == "Map":
        part = _comparable(kind.item_type, ", ".join(arguments[1:]))
        return None if part is None else pa.map_(kind.key_type, kind.item_field.with_type(part))
    # Fields without names can be left out by none: then all are compared.
    if pa.types.is_struct(kind) and outer == "Tuple" and (named := fields(target)):
        found = [(field, _comparable(field.type, named.get(field.name, ""))) for field in kind]
        compared = [field.with_type(part) for field, part in found if part is not None]
        return pa.struct(compared) if compared else None
    return kind
