"""JSON in Confluent's wire format (JSON Schema). The columns say what is accepted, as for any JSON; the schemas say the
types of fields that no column takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, Refused, decode_each
from jobs.decode.columns.cursors import cut
from jobs.decode.json_fast import Json
from jobs.decode.registered import PREFIX_BYTES, RegisteredSchema, other_type, split, unknown
from jobs.decode.undeclared import undeclared_wires
from jobs.decode.unknown import Watch
from jobs.schema.found_fields import FoundField, FoundFields
from jobs.schema.json_schema import column_type, json_schema_wire
from jobs.schema.wire import Wire


class RegisteredJson:
    """Takes the prefix off and leaves the rest to the JSON decoder; a schema id must be known, and of type JSON."""

    def __init__(self, kind: pa.DataType, schemas: Mapping[int, RegisteredSchema], watch: Watch | None = None) -> None:
        self._inner, self._kind, self._schemas, self._watch = Json(kind, watch), kind, dict(schemas), watch

    def __reduce__(self) -> tuple[type[RegisteredJson], tuple[Any, ...]]:
        return type(self), (self._kind, self._schemas, self._watch)

    @property
    def type(self) -> pa.DataType:
        return self._kind

    def decode(self, raw: pa.Array) -> Decoded:
        records = pc.cast(raw, pa.binary())
        prefixes = pc.binary_slice(records, 0, PREFIX_BYTES).dictionary_encode()
        good = [self._is_good(prefix) for prefix in prefixes.dictionary.to_pylist()]
        taken = pa.array(good, pa.bool_()).take(prefixes.indices)
        _, errors = decode_each(pc.if_else(taken, pa.scalar(None, pa.binary()), records), self._text)
        texts = pc.if_else(taken, cut(records, PREFIX_BYTES, 0), pa.scalar(None, pa.binary()))
        decoded = self._inner.decode(texts)
        unknown = self._unknown(prefixes.filter(taken), decoded.unknown)
        return Decoded(decoded.values, {**decoded.errors, **errors}, unknown=unknown)

    def _unknown(self, prefixes: pa.Array, by_value: FoundFields) -> FoundFields:
        """The fields in the records' schemas with the types there; others, and what schemas leave open, by values."""
        if self._watch is None or self._watch.then != "report":
            return by_value
        found = FoundFields(more=by_value.more)
        for counted in prefixes.value_counts().to_pylist():
            schema = self._schemas[split(counted["values"])[0]]
            for path, wire in undeclared_wires(_wire(schema.texts[-1]), self._kind, self._watch):
                seen = by_value.by_path.get(path)
                kind = column_type(wire, seen.type if seen else None)
                if kind is not None:
                    found += FoundFields({path: FoundField(kind, counted["counts"])})
        others = {path: one for path, one in by_value.by_path.items() if path not in found.by_path}
        return found + FoundFields(others)

    def _is_good(self, prefix: bytes) -> bool:
        try:
            self._text(prefix)
        except Refused:
            return False
        return True

    def _text(self, record: bytes) -> bytes:
        schema_id, text = split(record)
        schema = self._schemas.get(schema_id)
        if schema is None:
            raise unknown(schema_id)
        if schema.type != "JSON":
            raise other_type(schema_id, "JSON", schema.type)
        return text


@lru_cache(256)
def _wire(text: str) -> Wire:
    try:
        return json_schema_wire(json.loads(text))
    except (ValueError, RecursionError):
        return Wire("any")
