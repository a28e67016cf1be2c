"""Places in records, one in each, that are read in step."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.columns.arrays import arrow

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_PADDING = 16  # so that a word, or the longest number, can be read at the last byte
_STOPS, _LOW, _ONES = np.uint64(0x8080808080808080), np.uint64(0x7F7F7F7F7F7F7F7F), np.uint64(0x0101010101010101)
_BIT = np.uint64(1)
# How the groups of 7 bits move together: which stay, which move, by how many bits.
_GROUP_MOVES = [
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
]


class NotInStep(Exception):
    """A schema whose records cannot be read in step."""


class Cursors:
    """One place in each record. What cannot be read there makes `good` false; the place is then the record's end.

    Attributes:
        at: where in the bytes.
        end: of the record, or of the part of it that is read.
        good: the record could be read so far.
    """

    def __init__(self, data: npt.NDArray[np.uint8], at: Ints, end: Ints) -> None:
        self._data, self.at, self.end = data, at, end
        self.good: Mask = np.ones(len(at), np.bool_)
        # A word begins at every byte.
        self._words: Words = np.ndarray((len(data) - 7,), np.dtype("<u8"), data, 0, (1,))

    @classmethod
    def of_records(cls, raw: pa.Array) -> Cursors:
        """At the beginning of each record of a binary array without nulls."""
        ends, data = value_bounds(raw)
        padded = np.zeros(int(ends[-1] - ends[0]) + _PADDING, np.uint8)
        if data is not None:
            padded[:-_PADDING] = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
        ends -= ends[0]
        return cls(padded, ends[:-1].copy(), ends[1:].copy())

    def __len__(self) -> int:
        return len(self.at)

    def of(self, rows: Ints) -> Cursors:
        """Those of some records; `put` brings them back."""
        return Cursors(self._data, self.at[rows], self.end[rows])

    def put(self, rows: Ints, read: Cursors) -> None:
        """Those that `of` gave, after they were read."""
        self.at[rows] = read.at
        self.good[rows] &= read.good

    def part(self, lengths: Words) -> Cursors:
        """At the beginning of the next bytes, which are passed; `join` says what was read of them."""
        start, end = self.passed(lengths)
        return Cursors(self._data, start, end)

    def join(self, part: Cursors) -> None:
        """What `part` gave has to be read to its end."""
        self.refuse(~part.good | (part.at != part.end))

    def refuse(self, rows: Mask) -> None:
        self.good[rows] = False
        self.at[rows] = self.end[rows]

    def words(self) -> Words:
        """The next eight bytes, little end first, whether they belong to the record or not."""
        return self._words[self.at]

    def advance(self, count: Any) -> None:
        self.at += count
        over = self.at > self.end
        if over.any():
            self.refuse(over)

    def varint(self) -> Words:
        """The next variable-length integer, seven bits a byte, low ones first; of at most 64 bits."""
        word = self.words()
        stops = ~word & _STOPS
        first = stops & (~stops + _BIT)
        own = first ^ (first - _BIT)
        value = word & own & _LOW
        for stay, move, bits in _GROUP_MOVES:
            value = (value & stay) | ((value & move) >> bits)
        length = ((own & _ONES) * _ONES) >> np.uint64(56)
        long = np.flatnonzero(stops == 0)
        if len(long):
            self._ninth_and_tenth(long, value, length)
        self.advance(length.astype(np.int64))
        return value

    def zigzag(self) -> Ints:
        """The next variable-length integer, whose lowest bit is its sign."""
        value = self.varint()
        found: Ints = ((value >> _BIT) ^ (~(value & _BIT) + _BIT)).view(np.int64)
        return found

    def _ninth_and_tenth(self, rows: Ints, value: Words, length: Words) -> None:
        ninth, tenth = self._data[self.at[rows] + 8], self._data[self.at[rows] + 9]
        more = ninth >= 0x80
        high = (ninth & 0x7F).astype(np.uint64) << np.uint64(56)
        value[rows] |= high | np.where(more, tenth, 0).astype(np.uint64) << np.uint64(63)
        length[rows] = np.where(more, 10, 9)
        self.refuse_some(rows[more & (tenth > 1)])

    def refuse_some(self, rows: Ints) -> None:
        self.good[rows] = False
        self.at[rows] = self.end[rows]

    def passed(self, lengths: Any) -> tuple[Ints, Ints]:
        """Where the next bytes, of these lengths, begin and end."""
        room = self.end - self.at
        if np.isscalar(lengths):
            lengths = np.full(len(self), lengths, np.int64)
        over = lengths > room.astype(lengths.dtype)
        if over.any():
            self.refuse(over)
            lengths = np.where(over, 0, lengths)
        start = self.at
        self.at = start + lengths.astype(np.int64)
        return start, self.at.copy()

    def binary(self, lengths: Any) -> pa.Array:
        """The next bytes, of these lengths."""
        start, end = self.passed(lengths)
        return _between(pa.py_buffer(self._data), start, end)

    def string(self, lengths: Any) -> pa.Array:
        """The next bytes as text; what is no UTF-8 makes the record a bad one."""
        values = self.binary(lengths)
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            bad = np.array([not _is_text(value) for value in values.to_pylist()])
            self.refuse(bad)
            return pa.array([None if b else v for b, v in zip(bad, values.to_pylist(), strict=True)], pa.string())


def cut(raw: pa.Array, first: int, last: int) -> pa.Array:
    """The values of a binary array without so many bytes at their beginnings and ends; null stays null."""
    # `binary_slice` of Arrow asks for too much memory where no end is given.
    bounds, data = value_bounds(raw)
    start = np.minimum(bounds[:-1] + first, bounds[1:])
    found = _between(data, start, np.maximum(bounds[1:] - last, start))
    return pc.if_else(raw.is_valid(), found, pa.scalar(None, pa.binary())) if raw.null_count else found


def value_bounds(raw: pa.Array) -> tuple[Ints, pa.Buffer | None]:
    """Where each value of a binary array begins, and the last one ends, in its bytes."""
    _, offsets, data = raw.buffers()
    if not len(raw):
        return np.zeros(1, np.int64), None
    return np.frombuffer(offsets, np.int32)[raw.offset : raw.offset + len(raw) + 1].astype(np.int64), data


def _between(data: pa.Buffer | None, start: Ints, end: Ints) -> pa.Array:
    """Bytes from starts to ends, which never go down."""
    # What lies between them is a value too, so that Arrow takes them from the bytes as they are.
    offsets = np.empty(2 * len(start) + 1, np.int32)
    offsets[0:-1:2], offsets[1::2] = start, end
    offsets[-1] = end[-1] if len(end) else 0
    both = pa.Array.from_buffers(pa.binary(), 2 * len(start), [None, pa.py_buffer(offsets), data])
    return both.take(arrow(np.arange(0, 2 * len(start), 2)))


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
