"""What JSON without a schema leaves open: the unit of times that are numbers, and how decimals are written.

Debezium's JsonConverter with `schemas.enable=false` writes timestamps in the unit of the source's precision, and
decimals (`decimal.handling.mode=precise`) as the base64 of their unscaled bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import DecodeError, decode_each
from jobs.decode.columns.arrays import arrow
from jobs.decode.columns.convert import column_converter
from jobs.decode.convert import converter
from jobs.schema.wire import Wire

Refuse = Callable[[int, DecodeError], None]


@dataclass(frozen=True)
class JsonDialect:
    """How columns of the row (not what is nested in them) are written, where it is not as the JSON decoder reads."""

    timestamps: str = "ms"
    decimals: str = "text"

    def wire(self, column: pa.Field) -> pa.Field:
        """The column as the JSON decoder is to read it."""
        return pa.field(column.name, self._read_as(column.type) or column.type, metadata=column.metadata)

    def declared(self, values: pa.Array, column: pa.Field, refuse: Refuse) -> pa.Array:
        """The column as declared, from what `wire` has read; `refuse` gets row and error of what does not fit."""
        if self._read_as(column.type) is None:
            return values.cast(column.type)
        meaning = self._meaning(column.type)
        convert, one_by_one = column_converter(meaning, column.type), converter(meaning, column.type, column.name)
        assert convert is not None
        assert one_by_one is not None
        found, rows = convert(values)
        if not len(rows):
            return found
        open_ = np.zeros(len(values), np.bool_)
        open_[rows] = True
        decoded, errors = decode_each(values.filter(arrow(open_)), one_by_one)
        for index, error in errors.items():
            refuse(int(np.flatnonzero(open_)[index]), error)
        return pc.replace_with_mask(found, arrow(open_), pa.array(decoded, column.type))

    def _read_as(self, kind: pa.DataType) -> pa.DataType | None:
        if pa.types.is_timestamp(kind) and self.timestamps != "ms":
            return pa.int64()
        return pa.string() if pa.types.is_decimal(kind) and self.decimals == "base64" else None

    def _meaning(self, kind: pa.DataType) -> Wire:
        if pa.types.is_timestamp(kind):
            return Wire("long", f"timestamp-{self.timestamps}")
        return Wire("bytes", "decimal", scale=kind.scale, bytes_as="base64")
