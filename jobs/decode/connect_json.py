"""Kafka Connect's JSON with a schema in each record: ``{"schema": …, "payload": …}``.

The schema is the largest part of such a record, and the same in most of them: the text before the payload is compared
with those that were seen, and parsed only if it is new. Arrow's JSON reader reads payloads of one schema together;
those that it cannot read are parsed one by one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache

from jobs.decode.base import Refused
from jobs.decode.columns.arrays import arrow
from jobs.decode.columns.convert import Convert as ConvertColumns
from jobs.decode.columns.convert import column_converter
from jobs.decode.columns.cursors import cut
from jobs.decode.columns.reading import chosen, converted, others, tombstones
from jobs.decode.convert import Unrepresentable, converter
from jobs.decode.json_fast import ArrowJson
from jobs.decode.json_strict import parse_json
from jobs.decode.of_schema import Reading, SchemaDecoder, only_column
from jobs.decode.parts import SMALL, Part, Rows
from jobs.decode.scalars import as_it_is
from jobs.decode.unknown import Watch
from jobs.schema.connect import connect_wire
from jobs.schema.found_fields import FoundFields
from jobs.schema.types import inside, with_inside
from jobs.schema.wire import Wire, parts_of

_MOST_SCHEMAS = 64
# Records of a batch whose schema is unknown or rare; after these the rest are read one by one.
_MOST_STRANGE = 8
_BEGINS, _BETWEEN = re.compile(rb'\s*{\s*"schema"\s*:'), re.compile(rb'\s*,\s*"payload"\s*:')


@dataclass(frozen=True)
class Payloads:
    """How payloads of one schema are read together: by Arrow, as another type, from which they are converted."""

    of_arrow: ArrowJson
    convert: ConvertColumns

    def parts(self, raw: pa.Array, rows: Rows, start: int, undeclared: FoundFields) -> list[Part]:
        """Those of these rows that can be read (`jobs.decode.of_schema.Bulk`)."""
        found = self.of_arrow.parts(cut(chosen(raw, rows), start, 1))
        return [converted(part.values, rows[part.rows], self.convert, None, undeclared) for part in found]


class ConnectJson(SchemaDecoder):
    """Records of the JsonConverter with `schemas.enable=true`; a payload of null is a tombstone."""

    format: ClassVar[str] = "JSON with schema and payload"

    def __init__(self, kind: pa.DataType, watch: Watch | None = None) -> None:
        super().__init__(kind, watch)
        # By the text before the payload, and by the schema as JSON.
        self._known: dict[bytes, Reading | Refused] = {}
        self._of_schemas: LRUCache[str, Reading | Refused] = LRUCache(_MOST_SCHEMAS)
        self._last: bytes | None = None

    def __reduce__(self) -> tuple[type[ConnectJson], tuple[Any, ...]]:
        return type(self), (self.type, self._watch)

    def value(self, record: bytes) -> Any:
        payload, reading = self._split(record)
        if payload is None:
            return None
        if isinstance(reading, Refused):
            raise reading
        return self.watched(payload, reading)

    def bulk_parts(self, raw: pa.Array) -> list[Part]:
        found = [tombstones(raw, self.type)]
        open_ = others(raw, found[0])
        strange = 0
        while len(open_) > SMALL and strange <= _MOST_STRANGE:
            prefix = self._prefix(raw[int(open_[0])].as_py())
            records = raw.take(arrow(open_))
            mine = pc.and_(pc.starts_with(records, prefix), pc.ends_with(records, b"}")).to_numpy(zero_copy_only=False)
            if prefix and mine.sum() > SMALL:
                found += self.in_bulk(self._known[prefix], raw, open_[mine], len(prefix))
            else:
                mine, strange = np.arange(len(open_)) == 0, strange + 1
            open_ = open_[~mine]
        return found

    def _prefix(self, record: bytes) -> bytes:
        """The bytes before the record's payload; empty if they are not known."""
        try:
            self._split(record)
        except Exception:  # as for `_value`
            return b""
        return next((prefix for prefix in self._known if record.startswith(prefix)), b"")

    def _split(self, record: bytes) -> tuple[Any, Reading | Refused]:
        for prefix in (self._last, *self._known):
            if prefix is not None and record.startswith(prefix):
                try:
                    # The prefix ends where the payload begins, so the payload is the rest without `}`.
                    payload = _payload(record, len(prefix)) if record.endswith(b"}") else _whole(record)["payload"]
                except Refused:
                    break
                self._last = prefix
                return payload, self._known[prefix]
        envelope = _whole(record)
        text = json.dumps(envelope["schema"])
        reading = self._of_schemas.get(text)
        if reading is None:
            reading = self._of_schemas[text] = self._prepared(envelope["schema"])
        self._remember(record, envelope["schema"], reading)
        return envelope["payload"], reading

    def _prepared(self, schema: Any) -> Reading | Refused:
        if schema is None:
            return Refused("schema", "the record has no schema beside its payload")
        try:
            wire = connect_wire(schema)
        except (KeyError, TypeError):
            return Refused("schema", "the schema beside the payload is no Connect schema")
        try:
            if (name := only_column(wire, self.type)) is not None:
                wrapped = Wire("record", fields=((name, wire),))
                convert = converter(wrapped, self.type) or as_it_is
                return Reading(wrapped, _payload, lambda value: convert({name: value}))
            return self.complete(Reading(wire, _payload, converter(wire, self._fields), _bulk(wire, self._fields)))
        except Unrepresentable as problem:
            return Refused("schema", str(problem))

    def _remember(self, record: bytes, schema: Any, reading: Reading | Refused) -> None:
        """Remembers the text before the payload, if there the schema is."""
        begins = _BEGINS.match(record)
        if begins is None or len(self._known) == _MOST_SCHEMAS:
            return
        for between in _BETWEEN.finditer(record, begins.end()):
            try:
                if json.loads(record[begins.end() : between.start()]) == schema:
                    self._known[record[: between.end()]] = reading
                    return
            except ValueError:
                continue  # it is within the schema


def _bulk(wire: Wire, kind: pa.DataType) -> Payloads | None:
    convert, read = column_converter(wire, kind), _read_type(wire, kind)
    if convert is None or read is None or not pa.types.is_struct(read) or not read.num_fields:
        return None
    return Payloads(ArrowJson(read), convert)


def _read_type(wire: Wire, kind: pa.DataType) -> pa.DataType | None:
    """The JSON type of the declared part of values; None if Arrow cannot read it."""
    parts = parts_of(wire, kind)
    if not parts or wire.kind == "map":
        return _READ_TYPES.get(wire.kind)
    # Declared fields that the schema lacks must be absent: else the row decoder has to read the payload.
    types = {f.name: _read_type(parts[f.name], f.type) if f.name in parts else pa.null() for f in inside(kind)}
    return None if None in types.values() else with_inside(kind, [pa.field(*one) for one in types.items()])


_READ_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.string(),
}


def _payload(record: bytes, start: int) -> Any:
    return parse_json(record[start:-1], numbers=True)


def _whole(record: bytes) -> dict[str, Any]:
    envelope = parse_json(record, numbers=True)
    if not isinstance(envelope, dict) or not envelope.keys() >= {"schema", "payload"}:
        raise Refused("undecodable", "the record is not JSON with schema and payload")
    return envelope
