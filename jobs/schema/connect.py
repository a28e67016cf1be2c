"""Kafka Connect's schemas, which its JsonConverter writes beside each payload, as wire types.

Connect and Debezium mark logical types by a schema's name; other converters write it too (Avro: `connect.name`).

Sources: Kafka Connect's `org.apache.kafka.connect.data`, Debezium's documentation of the PostgreSQL, MySQL and SQL
Server connectors, "Temporal types", "Decimal types", "Data types".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jobs.schema.wire import Wire

CONNECT, _TIME, _DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."

# Debezium's Timestamp, MicroTimestamp and NanoTimestamp are columns without a zone, counted as if in UTC.
_NAMES = {
    f"{CONNECT}Date": ("date", False),
    f"{CONNECT}Time": ("time-ms", False),
    f"{CONNECT}Timestamp": ("timestamp-ms", False),
    f"{_TIME}Date": ("date", False),
    f"{_TIME}Time": ("time-ms", False),
    f"{_TIME}MicroTime": ("time-us", False),
    f"{_TIME}NanoTime": ("time-ns", False),
    f"{_TIME}Timestamp": ("timestamp-ms", True),
    f"{_TIME}MicroTimestamp": ("timestamp-us", True),
    f"{_TIME}NanoTimestamp": ("timestamp-ns", True),
    f"{_TIME}ZonedTimestamp": ("timestamp-text", False),
    f"{_TIME}IsoDate": ("date-iso", False),
    f"{_TIME}IsoTimestamp": ("timestamp-iso", True),
    f"{_TIME}ZonedTime": ("time-text", False),
    f"{_TIME}IsoTime": ("time-iso", False),
    f"{_DATA}Uuid": ("uuid", False),
    f"{_DATA}Enum": ("enum", False),
    f"{_DATA}Json": ("json", False),
    f"{_DATA}VariableScaleDecimal": ("variable-decimal", False),
}


def with_name(wire: Wire, name: str | None, parameters: Mapping[str, str] | None) -> Wire:
    """The wire type with the logical type of its Connect name; unchanged for unknown names."""
    if name == f"{CONNECT}Decimal":
        known = parameters or {}
        precision = known.get("connect.decimal.precision", "0")
        return replace(wire, logical="decimal", scale=int(known.get("scale", wire.scale)), precision=int(precision))
    if name in _NAMES:
        logical, local = _NAMES[name]
        return replace(wire, logical=logical, local=local)
    return wire


_KINDS = {
    "boolean": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "float32": "float",
    "double": "double",
    "float64": "double",
    "string": "string",
}


def connect_wire(schema: Mapping[str, Any]) -> Wire:
    """The wire type of a Connect schema; raises KeyError or TypeError if it is not one."""
    kind = schema["type"]
    match kind:
        case "struct":
            found = Wire("record", fields=tuple((f["field"], connect_wire(f)) for f in schema["fields"]))
        case "array":
            found = Wire("array", items=(connect_wire(schema["items"]),))
        case "map":
            found = Wire("map", items=(connect_wire(schema["keys"]), connect_wire(schema["values"])))
        case "bytes":
            found = Wire("bytes", bytes_as="base64")
        case _:
            found = Wire(_KINDS[kind], json_number=_KINDS[kind] in ("int", "long", "float", "double"))
    named = with_name(found, schema.get("name"), schema.get("parameters"))
    return named.optional() if schema.get("optional") else named
