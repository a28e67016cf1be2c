"""Debezium's placeholder for a large value that a change has not touched, in every form in which it can arrive.

The connector's `unavailable.value.placeholder` is text, or bytes as `hex:…`. Text and bytes columns have it as it is,
bytes columns that the connector writes as text (`binary.handling.mode`) have it as base64 or hex, arrays as their only
element or with one element a byte, and maps (hstore) as their only key and value.

Sources: Debezium's documentation of `unavailable.value.placeholder` and "Toasted values" (PostgreSQL connector).
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

DEFAULT = "__debezium_unavailable_value"
_HEX = "hex:"


@dataclass(frozen=True)
class Placeholder:
    """The placeholder of one connector, from the value of its option `unavailable.value.placeholder`.

    Raises:
        ValueError: what follows `hex:` is not hexadecimal.
    """

    written: str = DEFAULT

    def __post_init__(self) -> None:
        if not self.bytes:
            raise ValueError("the placeholder is empty")

    @cached_property
    def bytes(self) -> bytes:
        if self.written.startswith(_HEX):
            return bytes.fromhex(self.written.removeprefix(_HEX))
        return self.written.encode()

    @property
    def text(self) -> str:
        return self.bytes.decode(errors="replace")

    @property
    def texts(self) -> list[str]:
        """The placeholder's forms in a text column: as it is, bytes written as text, and an hstore written as JSON."""
        return [
            self.text,
            base64.b64encode(self.bytes).decode(),
            base64.urlsafe_b64encode(self.bytes).decode(),
            self.bytes.hex(),
            json.dumps({self.text: self.text}, ensure_ascii=False, separators=(",", ":")),
        ]

    def held_by(self, values: pa.Array) -> pa.Array | None:
        """Whether each value is the placeholder; None for a type that cannot hold it."""
        kind = values.type
        if kind == pa.string():
            return pc.is_in(values, value_set=pa.array(self.texts))
        if kind == pa.binary():
            return pc.is_in(values, value_set=pa.array([self.bytes], pa.binary()))
        if not may_hold(kind):
            return None
        pair = [(self.text, self.text)]
        return _one_of(values, self._elements(kind.value_type) if pa.types.is_list(kind) else [pair])

    def _elements(self, kind: pa.DataType) -> list[list[Any]]:
        """The placeholder's forms in an array of this element type."""
        if kind == pa.string():
            digest = hashlib.md5(self.bytes, usedforsecurity=False).digest()
            return [[self.text], [str(uuid.UUID(bytes=digest, version=3))]]
        if kind == pa.binary():
            return [[self.bytes]]
        signed = pa.array(list(memoryview(self.bytes).cast("b")), pa.int32())
        return [signed.cast(kind).to_pylist()]


def may_hold(kind: pa.DataType) -> bool:
    """Whether a column of this type can hold the placeholder."""
    if pa.types.is_map(kind):
        return bool(kind.key_type == pa.string() and kind.item_type == pa.string())
    return kind.value_type in (*_TEXT, *_NUMBERS) if pa.types.is_list(kind) else kind in _TEXT


_TEXT = (pa.string(), pa.binary())
_NUMBERS = (pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32())


def _one_of(values: pa.Array, forms: list[list[Any]]) -> pa.Array:
    """Which lists or maps are one of the forms; compares only those of the same length."""
    lengths = pc.subtract(values.offsets[1:], values.offsets[:-1])
    likely = pc.indices_nonzero(pc.is_in(lengths, value_set=pa.array({len(form) for form in forms}, lengths.type)))
    found = {
        row for row, value in zip(likely.to_pylist(), values.take(likely).to_pylist(), strict=True) if value in forms
    }
    return pa.array([row in found for row in range(len(values))], pa.bool_())
