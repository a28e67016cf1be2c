"""Proposes columns from the records' own schema: Kafka Connect's, or a registry's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.decode.base import Refused
from jobs.decode.json_strict import parse_json
from jobs.decode.registered import MessageIndex, message_index, split
from jobs.schema.avro import avro_wire
from jobs.schema.json_schema import json_schema_wire
from jobs.schema.protobuf import Messages, compiled, message_wire
from jobs.schema.types import as_text, type_name
from jobs.schema.wire import UNFIXED_DECIMAL, Wire, natural_type
from resources.errors import ConfigurationError

if TYPE_CHECKING:
    from resources.stored_schema import StoredSchema


def described_fields(wire: Wire, remarks: list[str]) -> list[pa.Field]:
    """The columns of a record; fields without a column type become `text`."""
    record = wire if wire.kind == "record" else Wire("record", fields=(("value", wire),))
    found = []
    for name, kind in record.fields:
        try:
            column = pa.field(name, natural_type(kind, name), nullable=kind.nullable)
        except ConfigurationError:
            remarks.append(f"{name}: {kind} has no column type, taken as text")
            column = as_text(pa.field(name, pa.string(), nullable=kind.nullable))
        found.append(column)
    return found


def string_instead(column: str) -> str | None:
    """The column's type with text for numbers without a fixed precision; None if it has no such numbers."""
    unfixed = type_name(UNFIXED_DECIMAL)
    return column.replace(unfixed, type_name(pa.string())) if unfixed in column else None


def wire_of(stored: StoredSchema, records: Iterable[bytes]) -> Wire:
    """The wire type of a registry's schema; for Protobuf, of the message that most of these records are."""
    if stored.type == "PROTOBUF":
        ((most, _),) = Counter(_indexes(records)).most_common(1) or [((0,), 0)]
        return message_wire(Messages(compiled(stored.texts, stored.names)).at(most))
    if stored.type == "JSON":
        return json_schema_wire(dict(parse_json(stored.texts[-1].encode(), numbers=True)))
    return avro_wire(stored.texts)


def _indexes(records: Iterable[bytes]) -> Iterable[MessageIndex]:
    """What tells the message of each record that has it."""
    for record in records:
        with suppress(Refused):
            yield message_index(record, split(record)[1])[0]
