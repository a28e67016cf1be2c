"""JSON in Confluent's wire format (JSON Schema). Values are decoded by the columns' types, like any JSON; the schemas
are used for types of fields without a column, and for texts that are a decimal's bytes, as Confluent's
JsonSchemaConverter writes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, Decoder, Refused, decode_each
from jobs.decode.by_topic import decode_by_topic
from jobs.decode.columns.cursors import cut
from jobs.decode.columns.reading import schema_prefixes
from jobs.decode.json_dialect import in_base64
from jobs.decode.json_fast import Json
from jobs.decode.registered import RegisteredSchema, known, split
from jobs.decode.undeclared import undeclared_wires
from jobs.decode.unknown import Watch
from jobs.schema.found_fields import FoundField, FoundFields
from jobs.schema.json_schema import column_type, json_schema_wire
from jobs.schema.types import inside, with_inside
from jobs.schema.wire import Wire, parts_of
from resources.stored_schema import SchemaId


class RegisteredJson:
    """Removes what names the schema, which must be known and of type JSON, and leaves the rest to the JSON decoder."""

    def __init__(
        self,
        kind: pa.DataType,
        schemas: Mapping[SchemaId, RegisteredSchema],
        watch: Watch | None = None,
        one_value: bool = False,
    ) -> None:
        """`one_value` as in `StrictJson`."""
        self.type, self._schemas, self._watch, self._one_value = kind, dict(schemas), watch, one_value
        self._inner = Json(kind, watch, one_value)

    def decode(self, raw: pa.Array) -> Decoded:
        records = pc.cast(raw, pa.binary())
        prefixes = schema_prefixes(records)
        good = [self._is_good(prefix) for prefix in prefixes.dictionary.to_pylist()]
        taken = pa.array(good, pa.bool_()).take(prefixes.indices)
        _, errors = decode_each(pc.if_else(taken, pa.scalar(None, pa.binary()), records), self._require)
        sizes = pa.array(list(map(len, prefixes.dictionary.to_pylist())), pa.int64()).take(prefixes.indices)
        texts = pc.if_else(taken, cut(records, sizes.fill_null(0).to_numpy(), 0), pa.scalar(None, pa.binary()))
        decoded = self._decoded(texts, prefixes, good)
        unknown = self._unknown(prefixes.filter(taken), decoded.unknown)
        return Decoded(decoded.values, {**decoded.errors, **errors}, unknown=unknown)

    def _decoded(self, texts: pa.Array, prefixes: pa.DictionaryArray, good: list[bool]) -> Decoded:
        """Decodes records; together those whose schemas write decimals in the same way."""
        plain, others = _identity(self.type), dict[str, Decoder]()
        names = []
        for prefix, is_good in zip(prefixes.dictionary.to_pylist(), good, strict=True):
            kind = _as_written(self.type, self._wire(split(prefix)[0])) if is_good else self.type
            names.append(_identity(kind))
            if names[-1] not in (plain, *others):
                others[names[-1]] = Json(kind, self._watch, self._one_value)
        return decode_by_topic(
            self._inner, others, texts, pa.array(names, pa.string()).take(prefixes.indices).fill_null(plain)
        )

    def _wire(self, schema_id: SchemaId) -> Wire:
        return _wire(self._schemas[schema_id].texts[-1])

    def _unknown(self, prefixes: pa.Array, by_value: FoundFields) -> FoundFields:
        """Unknown fields with the types of the records' schemas; by their values if the schemas have no type."""
        if self._watch is None or self._watch.then != "report":
            return by_value
        found = FoundFields(more=by_value.more)
        for counted in prefixes.value_counts().to_pylist():
            for path, wire in undeclared_wires(self._wire(split(counted["values"])[0]), self.type, self._watch):
                seen = by_value.by_path.get(path)
                kind = column_type(wire, seen.type if seen else None)
                if kind is not None:
                    found += FoundFields({path: FoundField(kind, counted["counts"])})
        others = {path: one for path, one in by_value.by_path.items() if path not in found.by_path}
        return found + FoundFields(others)

    def _is_good(self, prefix: bytes) -> bool:
        try:
            self._require(prefix)
        except Refused:
            return False
        return True

    def _require(self, record: bytes) -> None:
        known(self._schemas, split(record)[0], "JSON")


def _identity(kind: pa.DataType) -> str:
    """A text that is equal for equal types with equal marks on their fields."""
    return str(pa.schema([pa.field("", kind)]).serialize().hex())


def _as_written(kind: pa.DataType, wire: Wire) -> pa.DataType:
    """The type with a mark on decimals that the schema writes as bytes."""
    parts = parts_of(wire, kind)
    fields = [_field_as_written(f, parts[f.name]) if f.name in parts else f for f in inside(kind)]
    return with_inside(kind, fields) if parts else kind


def _field_as_written(field: pa.Field, wire: Wire) -> pa.Field:
    if wire.logical == "decimal" and pa.types.is_decimal(field.type):
        return in_base64(field, wire.scale)
    return field.with_type(_as_written(field.type, wire))


@lru_cache(256)
def _wire(text: str) -> Wire:
    try:
        return json_schema_wire(json.loads(text))
    except (ValueError, RecursionError):
        return Wire("any")
