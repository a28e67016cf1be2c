"""Columns proposed from the schema that records bring along: Kafka Connect's, or a registry's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.decode.convert import Unrepresentable, converter
from jobs.decode.json_strict import parse_json
from jobs.schema.avro import avro_wire
from jobs.schema.json_schema import json_schema_wire
from jobs.schema.protobuf import Messages, compiled, message_wire
from jobs.schema.types import type_name
from jobs.schema.wire import UNFIXED_DECIMAL, Wire, natural_type
from resources.errors import ConfigurationError

if TYPE_CHECKING:
    from resources.schema_registry import StoredSchema


def described_fields(wire: Wire, remarks: list[str]) -> list[pa.Field]:
    """The columns of a record; one without a column type is text where its values can be told as text."""
    record = wire if wire.kind == "record" else Wire("record", fields=(("value", wire),))
    found = []
    for name, kind in record.fields:
        try:
            column = natural_type(kind, name)
        except ConfigurationError as problem:
            if not _has_text(kind):
                remarks.append(f"left out: {problem}")
                continue
            remarks.append(f"{name}: {kind} has no column type, taken as string")
            column = pa.string()
        found.append(pa.field(name, column, nullable=kind.nullable))
    return found


def _has_text(wire: Wire) -> bool:
    try:
        converter(wire, pa.string())
    except Unrepresentable:
        return False
    return True


def string_instead(column: str) -> str | None:
    """The column's type with text where numbers have no fixed precision; None where it has none of these."""
    unfixed = type_name(UNFIXED_DECIMAL)
    return column.replace(unfixed, type_name(pa.string())) if unfixed in column else None


def wire_of(stored: StoredSchema) -> Wire:
    """What a registry's schema says of its records."""
    if stored.type == "PROTOBUF":
        return message_wire(Messages(compiled(stored.texts, stored.names)).at((0,)))
    if stored.type == "JSON":
        return json_schema_wire(dict(parse_json(stored.texts[-1].encode(), numbers=True)))
    return avro_wire(stored.texts)
