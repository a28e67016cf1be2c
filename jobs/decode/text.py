"""Records that are a single value: text in UTF-8, or bytes. The column's type says what they stand for:

======  ==========================  ======================================================================
format  column                      record
======  ==========================  ======================================================================
string  string                      the text
string  another type, not nested    the text as a JSON string in a column of this type, by best fit (`"7"`)
bytes   binary                      the bytes
bytes   int, long, float, double,   what Kafka's serializers write: big-endian, of the type's size; also
        boolean                     narrower numbers (a short, an int for a long)
======  ==========================  ======================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, DecodeError, Refused, decode_each
from jobs.decode.best_fit import in_text, of_json
from jobs.decode.json_dialect import JsonDialect
from jobs.decode.json_values import scalar_converter
from jobs.schema.types import shown_type, type_name
from resources.config_files.mistakes import one_of
from resources.errors import ConfigurationError

_TYPES = {"string": pa.string(), "bytes": pa.binary()}
# By type and number of bytes, what `struct` calls them; of one byte only 0 and 1 are booleans.
_SIZES = {
    pa.bool_(): {1: ">?"},
    pa.int32(): {2: ">h", 4: ">i"},
    pa.int64(): {2: ">h", 4: ">i", 8: ">q"},
    pa.float32(): {4: ">f"},
    pa.float64(): {4: ">f", 8: ">d"},
}

ConvertBytes = Callable[[bytes], Any]


class OneValue:
    """Decodes records to a scalar, or to a struct with one such field. Text that is not UTF-8 is refused."""

    def __init__(self, kind: pa.DataType, format: str) -> None:
        """Raises ConfigurationError for a type that the format has no values of, or a struct of several columns."""
        self.type, self._format = kind, format
        self._wrapped = pa.types.is_struct(kind) and kind.num_fields == 1
        self._field = kind.field(0) if self._wrapped else pa.field("", kind)
        self._is_plain = self._field.type == _TYPES[format]
        self._converter()

    def decode(self, raw: pa.Array) -> Decoded:
        try:
            values, errors = self._in_bulk(raw), dict[int, DecodeError]()
        except pa.ArrowInvalid:
            found, errors = decode_each(raw, self._converter())
            values = pa.array(found, self._field.type)
        if self._wrapped:
            values = pa.StructArray.from_arrays([values], fields=[self.type.field(0)], mask=values.is_null())
        return Decoded(values, errors)

    @property
    def _known(self) -> list[str]:
        """The types of a column that the format has values of, as far as they can be named."""
        return ["string", "any that is not nested"] if self._format == "string" else ["binary", *map(type_name, _SIZES)]

    def _in_bulk(self, raw: pa.Array) -> pa.Array:
        """The values of all records at once; raises ArrowInvalid if they have to be decoded one by one."""
        if self._is_plain:
            return pc.cast(raw, self._field.type)
        if self._format == "string" and pa.types.is_integer(self._field.type):
            return in_text(pc.cast(raw, pa.string()), self._field.type)
        raise pa.ArrowInvalid("one by one")

    def _converter(self) -> ConvertBytes:
        """The conversion of one record; raises Refused. Raises ConfigurationError if there is none."""
        kind, where = self._field.type, f"column {self._field.name}" if self._field.name else "the record"
        if self._is_plain:
            return _text
        if self._format == "bytes" and kind in _SIZES:
            return _number(kind, where)
        if self._format == "string" and not pa.types.is_nested(kind):
            converted = of_json(JsonDialect(best_fit=True).marked(self._field), scalar_converter(kind, where))
            return lambda record: converted(_text(record))
        raise ConfigurationError(
            f"records in the format {self._format} cannot be {shown_type(self._field)}",
            remedy=f"declare one column of type {one_of(self._known)}, or another format",
        )


def _text(record: bytes) -> str:
    try:
        return record.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("undecodable", f"the record: expected string, no UTF-8 at byte {error.start}") from None


def _number(kind: pa.DataType, where: str) -> ConvertBytes:
    sizes = _SIZES[kind]
    known = " or ".join(map(str, sizes))

    def convert(record: bytes) -> Any:
        layout = sizes.get(len(record))
        if layout == ">?" and record > b"\x01":
            raise Refused("type", f"{where}: expected boolean, found a byte that is neither 0 nor 1")
        if layout is None:
            expected = f"{type_name(kind)} ({known} bytes, big-endian)"
            raise Refused("type", f"{where}: expected {expected}, found {len(record)} bytes")
        return struct.unpack(layout, record)[0]

    return convert
