"""The schema of a record, independent of its format: Avro, Protobuf, Connect's, JSON Schema.

A `Wire` is the Python type that a decoder's parser returns for a value (`kind`) and the value's meaning (`logical`):

==================  =============================================================================================
kind                value in Python
==================  =============================================================================================
``boolean``         bool
``int`` ``long``    int of 32 or 64 bits; ``ulong`` of 64 bits without sign
``float`` ``double``  float, an infinity or NaN among them
``string`` ``bytes``  str, bytes
``record``          dict of its fields
``array`` ``map``   list; dict, or list of pairs
``union``           a value of one of the branches
==================  =============================================================================================

==========================  =====================================================================================
logical                     meaning
==========================  =====================================================================================
``decimal``                 bytes: an unscaled two's complement number, big end first, with `scale`; `bytes_as`
                            ``base64``: the same as a base64 string, or a JSON number
``number``                  a string that is a number (Debezium's decimal mode ``string``)
``variable-decimal``        a record of `scale` and `value` (Debezium's VariableScaleDecimal)
``date`` ``date-text``      days since 1970-01-01; ISO text
``date-parts``              a record of `year`, `month` and `day` (Google's)
``date-iso``                a date as ISO text with a Z (Debezium's IsoDate); a column of text unless declared
``time-ms -us -ns``         time of day, as a number; MySQL's are of up to 838 hours, and below zero
``time-parts``              a record of `hours`, `minutes`, `seconds` and `nanos` (Google's)
``time-text``               time of day as ISO text, perhaps with a zone
``time-iso``                the same with a Z, of a wall clock all the same (Debezium's IsoTime)
``timestamp-ms -us -ns``    an instant, or a wall clock counted as if it were in UTC (`local`)
``timestamp-text``          an RFC 3339 string
``timestamp-iso``           the same, of a wall clock all the same (Debezium's IsoTimestamp)
``uuid`` ``enum`` ``json``  text; ``uuid`` of kind bytes: 16 bytes
==========================  =====================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from jobs.schema.types import number_type
from resources.errors import ConfigurationError


@dataclass(frozen=True)
class Wire:
    """One type of a record's own schema.

    Attributes:
        fields: of a record, by name; branches of a union without null, by the names that Kafka Connect gives them.
        items: element of an array; key and value of a map.
        nullable: the value may be null.
        local: a timestamp without a zone.
        bytes_as: how bytes are written in a format without bytes (``base64``); empty: as bytes.
        json_number: a number as JSON has it: of any digits, also where the schema says that it is whole; NaN and the
            infinities are strings of these names.
        name: of a named type of Avro, or of a record that may contain itself.
    """

    kind: str
    logical: str = ""
    precision: int = 0
    scale: int = 0
    fields: tuple[tuple[str, Wire], ...] = ()
    items: tuple[Wire, ...] = ()
    nullable: bool = False
    local: bool = False
    bytes_as: str = ""
    json_number: bool = False
    name: str = field(default="", compare=False)

    def optional(self) -> Wire:
        return replace(self, nullable=True)

    def field(self, name: str) -> Wire | None:
        return dict(self.fields).get(name)

    def __str__(self) -> str:
        """The type for messages."""
        if self.logical == "decimal":
            return f"decimal({self.precision},{self.scale})" if self.precision else f"decimal of scale {self.scale}"
        if self.logical:
            return f"{self.kind} ({self.logical})"
        if self.kind == "union":
            return f"union of {', '.join(str(branch) for _, branch in self.fields)}"
        return self.kind


def parts_of(wire: Wire, kind: pa.DataType) -> dict[str, Wire]:
    """What is inside the wire type, by the names of `types.inside`; nothing where the other is not the like."""
    if wire.kind == "record" and pa.types.is_struct(kind):
        return dict(wire.fields)
    if wire.kind == "array" and pa.types.is_list(kind):
        return {"element": wire.items[0]}
    return {"value": wire.items[1]} if wire.kind == "map" and pa.types.is_map(kind) else {}


MOST_DIGITS = 38
# The type for numbers without a limit of digits: most of them fit.
UNFIXED_DECIMAL = pa.decimal128(MOST_DIGITS, 9)
INSTANT, WALL_CLOCK = pa.timestamp("us", "UTC"), pa.timestamp("us")

_KINDS = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "ulong": pa.decimal128(20, 0),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL = {
    "date": pa.date32(),
    "date-text": pa.date32(),
    "date-parts": pa.date32(),
    "variable-decimal": UNFIXED_DECIMAL,
    "number": UNFIXED_DECIMAL,
}


def natural_type(wire: Wire, path: str = "the record") -> pa.DataType:
    """The type of a column that can hold every value of this wire type.

    Raises:
        ConfigurationError: there is none (a record that contains itself or nothing, a decimal of over 38 digits).
    """
    simple = _simple_type(wire, path)
    if simple is not None:
        return simple
    match wire.kind:
        case "record" if wire.fields:
            return pa.struct(natural_fields(wire, path))
        case "array":
            return pa.list_(_natural_field("element", wire.items[0], path))
        case "map":
            key, value = wire.items
            return pa.map_(natural_type(key, f"{path}.key"), _natural_field("value", value, path))
        case "union":
            return _of_union([(name, natural_type(branch, path)) for name, branch in wire.fields])
    raise ConfigurationError(
        f"{path}: {wire.kind} has no column type",
        remedy="declare the columns in the pipeline file, without this one",
    )


def _simple_type(wire: Wire, path: str) -> pa.DataType | None:
    if wire.logical == "decimal":
        return _decimal(wire, path)
    if wire.logical.startswith("timestamp"):
        return WALL_CLOCK if wire.local else INSTANT
    if wire.logical.startswith("time-") or wire.logical in ("uuid", "enum", "json"):
        return pa.string()
    return _LOGICAL.get(wire.logical) or (pa.binary() if wire.bytes_as else _KINDS.get(wire.kind))


def natural_fields(wire: Wire, path: str = "") -> list[pa.Field]:
    """The columns of a record."""
    return [_natural_field(name, kind, path) for name, kind in wire.fields]


def _natural_field(name: str, wire: Wire, path: str) -> pa.Field:
    return pa.field(name, natural_type(wire, f"{path}.{name}" if path else name), nullable=wire.nullable)


def _decimal(wire: Wire, path: str) -> pa.DataType:
    precision = wire.precision or MOST_DIGITS
    if precision > MOST_DIGITS or not 0 <= wire.scale <= precision:
        raise ConfigurationError(
            f"{path}: {wire} has more than the {MOST_DIGITS} digits of a decimal column",
            remedy="declare the columns in the pipeline file, this one as string",
        )
    return pa.decimal128(precision, wire.scale)


def with_text(wire: Wire) -> Wire:
    """The type with text for records without fields, and for numbers that may have more digits than a decimal column: a
    column that nobody declared has to hold all values."""
    unlimited = wire.logical in ("number", "variable-decimal")
    unlimited = unlimited or (wire.logical == "decimal" and wire.precision > MOST_DIGITS)
    if unlimited or (wire.kind == "record" and not wire.logical and not wire.fields):
        return Wire("string", nullable=wire.nullable)
    fields = tuple((name, with_text(inner)) for name, inner in wire.fields)
    return replace(wire, fields=fields, items=tuple(map(with_text, wire.items)))


def _of_union(branches: list[tuple[str, pa.DataType]]) -> pa.DataType:
    """One type that fits values of all branches, else a struct with a field per branch, as Connect's converter."""
    kinds = {kind for _, kind in branches}
    if len(kinds) == 1:
        return branches[0][1]
    return number_type(kinds) or pa.struct(branches)
