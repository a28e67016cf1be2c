"""The interface of decoders of record bytes, and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import pyarrow as pa

from jobs.schema.found_fields import NOTHING_FOUND, FoundFields

Kind = Literal["undecodable", "type", "range", "missing", "schema", "unknown", "moved"]


@dataclass(frozen=True)
class DecodeError:
    """Why one record was refused.

    Attributes:
        kind: `undecodable` (not of the format at all), `type` (another type than declared), `range` (right type, but
            the value does not fit), `missing` (a `not null` column is absent or null), `schema` (the record's schema is
            unknown, or cannot be read as the declared columns), `unknown` (a field without a column, with
            `unknown_fields: fail`); later steps have kinds of their own.
        message: names the column's path, the expected and the found type; never the value.
        stage: where the error occurred: `key`, `value`, `transform`, `route`; the decoder's caller sets it.
    """

    kind: Kind | str
    message: str
    stage: str = ""

    def at(self, stage: str) -> DecodeError:
        return replace(self, stage=self.stage or stage)


@dataclass(frozen=True)
class Decoded:
    """An array of decoded values, as long as the raw one.

    Attributes:
        values: of the decoder's type; null where the raw bytes are null (a tombstone) and where the record failed.
        errors: from the index of each failed record to its error.
        filtered: indexes of records that are dropped on purpose.
        unchanged: from the index of each record that omits columns to their names (their values are null).
        unknown: fields that have no column, if the decoder has to report them (`jobs.decode.unknown`).
    """

    values: pa.Array
    errors: dict[int, DecodeError]
    filtered: frozenset[int] = frozenset()
    unchanged: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    unknown: FoundFields = NOTHING_FOUND


class Decoder(Protocol):
    """Decodes record bytes to values of one declared type. Picklable; has no state that changes a result."""

    @property
    def type(self) -> pa.DataType:
        """The type of the values."""

    def decode(self, raw: pa.Array) -> Decoded:
        """Decode an array of binary (or large binary); a record's failure is an entry in `errors`, not an exception."""


class Refused(Exception):
    """Raised inside a decoder for one record; becomes its `DecodeError`."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.error = DecodeError(kind, message)


def decode_each(raw: pa.Array, decode: Callable[[Any], Any]) -> tuple[list[Any], dict[int, DecodeError]]:
    """The values of records that are decoded one by one; null for tombstones and records that raise Refused."""
    values: list[Any] = []
    errors: dict[int, DecodeError] = {}
    for index, record in enumerate(raw.to_pylist()):
        value = None
        if record is not None:
            try:
                value = decode(record)
            except Refused as refused:
                # Without frames: a decoder may keep one exception for all records of a schema.
                errors[index] = refused.with_traceback(None).error
        values.append(value)
    return values, errors
