"""What all decoders share that can read one record at a time: each record's failure is its own."""

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
    """A decoder that reads the records together which it can, and parses the others record by record.

    Attributes:
        format: what messages call it.
    """

    format: ClassVar[str]

    def __init__(self, kind: pa.DataType, watch: Watch | None = None) -> None:
        """Args:
        watch: what to do about fields of a record's schema that no column takes.
        """
        self._type, self._watch = kind, watch
        # The columns that fields of records fill.
        self._fields = watch.without_column(kind) if watch else kind
        self._rest = watch.rest(kind) if watch and watch.then != "report" else None
        self._reported: dict[int, tuple[FoundFields, int]] = {}
        self._meanings: dict[int, tuple[Wire, Meaning | None]] = {}

    @property
    def type(self) -> pa.DataType:
        return self._type

    @abstractmethod
    def value(self, record: bytes) -> Any:
        """What `pa.array` takes for the type. Raises Refused; any other exception means: not of this format."""

    def watched(self, parsed: Any, convert: Convert | None, undeclared: FoundFields, wire: Wire) -> Any:
        """The converted value of a record, with its fields that no column takes dealt with; raises Refused.

        They are reported of a record that its columns cannot hold, too: with wider ones it might be held.
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
        """The record whose fields that no column takes say in JSON what they mean, where they mean anything."""
        if id(wire) not in self._meanings:
            self._meanings[id(wire)] = wire, meaning_of(undeclared_part(wire, self._fields, watch))
        meaning = self._meanings[id(wire)][1]
        try:
            return parsed if meaning is None else meaning(parsed)
        except Refused:
            return parsed

    @abstractmethod
    def bulk_parts(self, raw: pa.Array) -> list[Part]:
        """Those of the records (binary) that need no parsing one by one, with the values that this would give."""

    def decode(self, raw: pa.Array) -> Decoded:
        return joined(judged(piece, self._parts(piece), self.decode_each) for piece in pieces(raw))

    def _parts(self, raw: pa.Array) -> list[Part]:
        try:
            found = self.bulk_parts(raw) if len(raw) > SMALL else []
        except Exception:  # one record alone is never wrong about another
            return []
        return [replace(part, values=with_fields(part.values, self._type)) for part in found]

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
        except Exception as problem:  # parsers raise what they like on broken bytes, and say values in it
            raise Refused("undecodable", f"the record is not {self.format}: {type(problem).__name__}") from None

    def _array(self, values: Sequence[Any], errors: dict[int, DecodeError]) -> pa.Array:
        try:
            return pa.array(values, type=self._type)
        except _ARROW:
            return pa.concat_arrays([self._single(index, value, errors) for index, value in enumerate(values)])

    def _single(self, index: int, value: Any, errors: dict[int, DecodeError]) -> pa.Array:
        try:
            return pa.array([value], type=self._type)
        except _ARROW as problem:
            text = f"a value cannot be stored as declared: {type(problem).__name__}"
            errors[index] = DecodeError("type", text)
            return pa.nulls(1, self._type)
