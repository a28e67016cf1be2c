"""The base of decoders that can read one record at a time, so that each record fails on its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

from jobs.decode.base import Decoded, DecodeError, Refused, decode_each
from jobs.decode.meant import Meaning, meaning_of
from jobs.decode.parts import SMALL, Part, joined, judged, pieces
from jobs.decode.scalars import Convert
from jobs.decode.undeclared import undeclared_part
from jobs.decode.unknown import Finding, Watch
from jobs.schema.found_fields import NOTHING_FOUND, FoundFields
from jobs.schema.wire import Wire
from jobs.schema.with_fields import with_fields

_ARROW = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError, TypeError, OverflowError)


class RowDecoder(ABC):
    """A decoder that reads as many records as possible together, and parses the others one by one.

    Attributes:
        format: its name, for messages.
    """

    format: ClassVar[str]

    def __init__(self, kind: pa.DataType, watch: Watch | None = None) -> None:
        """Args:
        watch: what to do about fields of a record's schema that have no column.
        """
        self.type, self._watch = kind, watch
        # The columns that are filled from fields of records.
        self._fields = watch.without_column(kind) if watch else kind
        self._rest = watch.rest(kind) if watch and watch.then != "report" else None
        self._reported: dict[int, tuple[FoundFields, int]] = {}
        self._meanings: dict[int, tuple[Wire, Meaning | None]] = {}

    @abstractmethod
    def value(self, record: bytes) -> Any:
        """A value that `pa.array` accepts for the type. Raises Refused; other exceptions mean: not of this format."""

    def watched(self, parsed: Any, convert: Convert | None, undeclared: FoundFields, wire: Wire) -> Any:
        """The converted value of a record, after handling its fields without a column; raises Refused.

        Fields are reported also if the columns cannot hold the record: wider columns might.
        """
        looks = self._watch is not None and bool(undeclared) and parsed is not None
        if looks and self._rest is None:
            self._reported[id(undeclared)] = (undeclared, self._reported.get(id(undeclared), (undeclared, 0))[1] + 1)
        value = parsed if convert is None or parsed is None else convert(parsed)
        if not looks or self._rest is None or self._watch is None:
            return value
        rest = self._rest(self._meant(parsed, wire, self._watch))
        return value if rest is None else self._watch.apply(rest, value, Finding())

    def _meant(self, parsed: Any, wire: Wire, watch: Watch) -> Any:
        """The record with its fields without a column converted by their schema's meaning (`jobs.decode.meant`)."""
        if id(wire) not in self._meanings:
            self._meanings[id(wire)] = wire, meaning_of(undeclared_part(wire, self._fields, watch))
        meaning = self._meanings[id(wire)][1]
        try:
            return parsed if meaning is None else meaning(parsed)
        except Refused:
            return parsed

    @abstractmethod
    def bulk_parts(self, raw: pa.Array) -> list[Part]:
        """Those of the records (binary) that can be read together, with the same values as one by one."""

    def decode(self, raw: pa.Array) -> Decoded:
        return joined(judged(piece, self._parts(piece), self.decode_each) for piece in pieces(raw))

    def _parts(self, raw: pa.Array) -> list[Part]:
        try:
            found = self.bulk_parts(raw) if len(raw) > SMALL else []
        except Exception:  # decoded one by one, a record does not affect others
            return []
        return [replace(part, values=with_fields(part.values, self.type)) for part in found]

    def decode_each(self, raw: pa.Array) -> Decoded:
        self._reported = {}
        values, errors = decode_each(raw, self._value)
        unknown = sum((fields.times(records) for fields, records in self._reported.values()), NOTHING_FOUND)
        return Decoded(self._array(values, errors), errors, unknown=unknown)

    def _value(self, record: bytes) -> Any:
        try:
            return self.value(record)
        except Refused:
            raise
        except Exception as problem:  # parsers may raise anything on broken bytes, with values in the message
            raise Refused("undecodable", f"the record is not {self.format}: {type(problem).__name__}") from None

    def _array(self, values: Sequence[Any], errors: dict[int, DecodeError]) -> pa.Array:
        try:
            return pa.array(values, type=self.type)
        except _ARROW:
            return pa.concat_arrays([self._single(index, value, errors) for index, value in enumerate(values)])

    def _single(self, index: int, value: Any, errors: dict[int, DecodeError]) -> pa.Array:
        try:
            return pa.array([value], type=self.type)
        except _ARROW as problem:
            text = f"a value cannot be stored as declared: {type(problem).__name__}"
            errors[index] = DecodeError("type", text)
            return pa.nulls(1, self.type)
