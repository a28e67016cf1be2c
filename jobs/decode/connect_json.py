"""Kafka Connect's JSON with a schema in each record: ``{"schema": …, "payload": …}``.

The schema is most of such a record, and the same in most of them: the text before the payload is compared with those
that were seen, and parsed only where it is new.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from jobs.decode.base import Refused
from jobs.decode.convert import Unrepresentable, converter
from jobs.decode.json_strict import parse_json
from jobs.decode.rows import RowDecoder
from jobs.decode.scalars import Convert
from jobs.decode.undeclared import undeclared
from jobs.decode.unknown import Watch
from jobs.schema.connect_schema import connect_wire
from jobs.schema.found_fields import NOTHING_FOUND, FoundFields
from jobs.schema.wire import Wire

_MOST_SCHEMAS = 64
_BEGINS, _BETWEEN = b'{"schema":', b',"payload":'


@dataclass(frozen=True)
class Reading:
    """How payloads of one schema become values; `convert` None: they are right as they are."""

    convert: Convert | None
    unknown: FoundFields = NOTHING_FOUND


class ConnectJson(RowDecoder):
    """Records of the JsonConverter with `schemas.enable=true`; a payload of null is a tombstone."""

    format: ClassVar[str] = "JSON with schema and payload"

    def __init__(self, kind: pa.DataType, watch: Watch | None = None) -> None:
        super().__init__(kind, watch)
        self._known: dict[bytes, Reading | Refused] = {}
        self._last: bytes | None = None

    def __reduce__(self) -> tuple[type[ConnectJson], tuple[Any, ...]]:
        return type(self), (self._type, self._watch)

    def value(self, record: bytes) -> Any:
        payload, reading = self._split(record)
        if payload is None:
            return None
        if isinstance(reading, Refused):
            raise reading
        return self.watched(payload, reading.convert, reading.unknown)

    def _split(self, record: bytes) -> tuple[Any, Reading | Refused]:
        for prefix in (self._last, *self._known):
            if prefix is not None and record.startswith(prefix):
                try:
                    # The prefix is `{"schema":<a whole value>,"payload":`, so the rest but one bracket is the payload.
                    payload = parse(record[len(prefix) : -1]) if record.endswith(b"}") else _whole(record)["payload"]
                except Refused:
                    break
                self._last = prefix
                return payload, self._known[prefix]
        envelope = _whole(record)
        reading = self._prepared(envelope["schema"])
        self._remember(record, envelope["schema"], reading)
        return envelope["payload"], reading

    def _prepared(self, schema: Any) -> Reading | Refused:
        if schema is None:
            return Refused("schema", "the record has no schema beside its payload")
        try:
            wire = connect_wire(schema)
        except (KeyError, TypeError):
            return Refused("schema", "the schema beside the payload is no Connect schema")
        if pa.types.is_struct(self._type) and wire.kind != "record" and self._type.num_fields == 1:
            return self._wrapped(wire)
        try:
            convert = converter(wire, self._fields)
        except Unrepresentable as problem:
            return Refused("schema", str(problem))
        return Reading(convert, undeclared(wire, self._fields, self._watch))

    def _wrapped(self, wire: Wire) -> Reading | Refused:
        """A key that is one value, as the only column."""
        field = self._type.field(0)
        try:
            convert = converter(wire, field.type, field.name)
        except Unrepresentable as problem:
            return Refused("schema", str(problem))
        return Reading(lambda value: {field.name: value if convert is None else convert(value)})

    def _remember(self, record: bytes, schema: Any, reading: Reading | Refused) -> None:
        at = record.find(_BETWEEN)
        while at >= 0 and len(self._known) < _MOST_SCHEMAS:
            try:
                if record.startswith(_BEGINS) and json.loads(record[len(_BEGINS) : at]) == schema:
                    self._known[record[: at + len(_BETWEEN)]] = reading
                    return
            except ValueError:
                pass
            at = record.find(_BETWEEN, at + 1)


def parse(record: bytes) -> Any:
    """A JSON value with Python's numbers; raises Refused."""
    return parse_json(record, numbers=True)


def _whole(record: bytes) -> dict[str, Any]:
    envelope = parse(record)
    if not isinstance(envelope, dict) or not envelope.keys() >= {"schema", "payload"}:
        raise Refused("undecodable", "the record is not JSON with schema and payload")
    return envelope
