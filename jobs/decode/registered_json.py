"""JSON in Confluent's wire format (JSON Schema). The declared columns say what is accepted, as for any JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, Decoder, Refused, decode_each
from jobs.decode.columns.cursors import cut
from jobs.decode.registered import PREFIX_BYTES, RegisteredSchema, other_type, split, unknown


class RegisteredJson:
    """Takes the prefix off and leaves the rest to the JSON decoder; a schema id must be known, and of type JSON."""

    def __init__(self, inner: Decoder, schemas: Mapping[int, RegisteredSchema]) -> None:
        self._inner, self._schemas = inner, dict(schemas)

    def __reduce__(self) -> tuple[type[RegisteredJson], tuple[Any, ...]]:
        return type(self), (self._inner, self._schemas)

    @property
    def type(self) -> pa.DataType:
        return self._inner.type

    def decode(self, raw: pa.Array) -> Decoded:
        records = pc.cast(raw, pa.binary())
        prefixes = pc.binary_slice(records, 0, PREFIX_BYTES).dictionary_encode()
        good = [self._is_good(prefix) for prefix in prefixes.dictionary.to_pylist()]
        taken = pa.array(good, pa.bool_()).take(prefixes.indices)
        _, errors = decode_each(pc.if_else(taken, pa.scalar(None, pa.binary()), records), self._text)
        texts = pc.if_else(taken, cut(records, PREFIX_BYTES, 0), pa.scalar(None, pa.binary()))
        decoded = self._inner.decode(texts)
        return Decoded(decoded.values, {**decoded.errors, **errors}, unknown=decoded.unknown)

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
