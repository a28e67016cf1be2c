"""Records that are a single value: UTF-8 text, or plain bytes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, DecodeError, Refused, decode_each
from jobs.schema.types import type_name
from resources.errors import ConfigurationError

_TYPES = {"string": pa.string(), "bytes": pa.binary()}


class OneValue:
    """Decodes records to a scalar, or to a struct with one such field. Text that is not UTF-8 is refused."""

    def __init__(self, kind: pa.DataType, format: str) -> None:
        """Raises ConfigurationError unless the type is the format's scalar or a struct of one such column."""
        self.type, self._scalar = kind, _TYPES[format]
        self._wrapped = pa.types.is_struct(kind) and kind.num_fields == 1
        if (kind.field(0).type if self._wrapped else kind) != self._scalar:
            raise ConfigurationError(
                f"records in the format {format} cannot be {type_name(kind)}",
                remedy=f"declare one column of type {type_name(self._scalar)}, or another format",
            )

    def decode(self, raw: pa.Array) -> Decoded:
        try:
            values, errors = pc.cast(raw, self._scalar), dict[int, DecodeError]()
        except pa.ArrowInvalid:
            texts, errors = decode_each(raw, _text)
            values = pa.array(texts, self._scalar)
        if self._wrapped:
            values = pa.StructArray.from_arrays([values], fields=[self.type.field(0)], mask=values.is_null())
        return Decoded(values, errors)


def _text(record: bytes) -> str:
    try:
        return record.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("undecodable", f"the record: expected string, no UTF-8 at byte {error.start}") from None
