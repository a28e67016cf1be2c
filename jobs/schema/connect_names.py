"""The logical types that Kafka Connect and Debezium mark by a schema's name, in Avro (`connect.name`) and in JSON.

Sources: Kafka Connect's `org.apache.kafka.connect.data`, Debezium's documentation of the PostgreSQL, MySQL and SQL
Server connectors, "Temporal types", "Decimal types", "Data types".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jobs.schema.wire import Wire

_CONNECT, _TIME, _DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."

# Debezium's Timestamp, MicroTimestamp and NanoTimestamp are columns without a zone, counted as if in UTC.
_NAMES = {
    f"{_CONNECT}Date": ("date", False),
    f"{_CONNECT}Time": ("time-ms", False),
    f"{_CONNECT}Timestamp": ("timestamp-ms", False),
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
    f"{_TIME}IsoTime": ("time-text", False),
    f"{_DATA}Uuid": ("uuid", False),
    f"{_DATA}Enum": ("enum", False),
    f"{_DATA}Json": ("json", False),
    f"{_DATA}VariableScaleDecimal": ("variable-decimal", False),
}


def with_name(wire: Wire, name: str | None, parameters: Mapping[str, str] | None) -> Wire:
    """The wire type with the logical type of its Connect name; unchanged for unknown names."""
    if name == f"{_CONNECT}Decimal":
        known = parameters or {}
        precision = known.get("connect.decimal.precision", "0")
        return replace(wire, logical="decimal", scale=int(known.get("scale", wire.scale)), precision=int(precision))
    if name in _NAMES:
        logical, local = _NAMES[name]
        return replace(wire, logical=logical, local=local)
    return wire
