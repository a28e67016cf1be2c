"""Cursors: a position in each record, for reading all records in parallel with numpy."""

from __future__ import annotations

from collections.abc import Callable
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
# How groups of 7 bits are joined: the mask of those that stay, of those that move, and by how many bits.
_GROUP_MOVES = [
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
]


class NotInStep(Exception):
    """The schema's records cannot be read column by column."""


class Cursors:
    """A position in each record. If a record cannot be read, `good` becomes false and the position is its end.

    Attributes:
        at: the positions in the bytes.
        end: the end of each record, or of its part that is read.
        good: whether the record could be read so far.
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
        """The cursors of some records; `put` writes them back."""
        return Cursors(self._data, self.at[rows], self.end[rows])

    def put(self, rows: Ints, read: Cursors) -> None:
        """Writes back cursors that `of` returned, after reading."""
        self.at[rows] = read.at
        self.good[rows] &= read.good

    def read(self, rows: Ints, read: Callable[[Cursors], Any]) -> Any:
        """Reads on in some records."""
        if len(rows) == len(self):
            return read(self)
        own = self.of(rows)
        found = read(own)
        self.put(rows, own)
        return found

    def part(self, lengths: Words) -> Cursors:
        """Cursors for the next `lengths` bytes, which these cursors skip; finish with `join`."""
        start, end = self.passed(lengths)
        return Cursors(self._data, start, end)

    def join(self, part: Cursors) -> None:
        """Ends a `part`, which must have been read to its end."""
        self.refuse(~part.good | (part.at != part.end))

    def refuse(self, rows: Mask | Ints) -> None:
        self.good[rows] = False
        self.at[rows] = self.end[rows]

    def words(self) -> Words:
        """The next eight bytes, little-endian, whether they belong to the record or not."""
        return self._words[self.at]

    def eight(self) -> Words:
        """The next eight bytes, little-endian."""
        words = self.words()
        self.advance(8)
        return words

    def four(self) -> npt.NDArray[np.uint32]:
        """The next four bytes, little-endian."""
        words = self.words().astype(np.uint32)
        self.advance(4)
        return words

    def advance(self, count: Any) -> None:
        self.at += count
        over = self.at > self.end
        if over.any():
            self.refuse(over)

    def varint(self) -> Words:
        """The next variable-length integer (at most 64 bits), seven bits a byte, low ones first."""
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
        """The next zigzag-encoded variable-length integer."""
        value = self.varint()
        found: Ints = ((value >> _BIT) ^ (~(value & _BIT) + _BIT)).view(np.int64)
        return found

    def _ninth_and_tenth(self, rows: Ints, value: Words, length: Words) -> None:
        ninth, tenth = self._data[self.at[rows] + 8], self._data[self.at[rows] + 9]
        more = ninth >= 0x80
        high = (ninth & 0x7F).astype(np.uint64) << np.uint64(56)
        value[rows] |= high | np.where(more, tenth, 0).astype(np.uint64) << np.uint64(63)
        length[rows] = np.where(more, 10, 9)
        self.refuse(rows[more & (tenth > 1)])

    def passed(self, lengths: Any) -> tuple[Ints, Ints]:
        """Skips the next `lengths` bytes; returns where they begin and end."""
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
        """The next `lengths` bytes."""
        start, end = self.passed(lengths)
        return _between(pa.py_buffer(self._data), start, end)

    def string(self, lengths: Any) -> pa.Array:
        """The next `lengths` bytes as text; if they are not UTF-8 the record is given up."""
        values = texts(self.binary(lengths))
        if values.null_count:
            self.refuse(values.is_null().to_numpy(zero_copy_only=False))
        return values


def cut(raw: pa.Array, first: int | Ints, last: int) -> pa.Array:
    """The values of a binary array without their first `first` (of all, or of each) and last `last` bytes; null remains
    null."""
    # Arrow's `binary_slice` allocates too much memory if no end is given.
    bounds, data = value_bounds(raw)
    start = np.minimum(bounds[:-1] + first, bounds[1:])
    found = _between(data, start, np.maximum(bounds[1:] - last, start))
    return pc.if_else(raw.is_valid(), found, pa.scalar(None, pa.binary())) if raw.null_count else found


def value_bounds(raw: pa.Array) -> tuple[Ints, pa.Buffer | None]:
    """The offsets of a binary array's values in its data: where each begins, and where the last one ends."""
    _, offsets, data = raw.buffers()
    if not len(raw):
        return np.zeros(1, np.int64), None
    return np.frombuffer(offsets, np.int32)[raw.offset : raw.offset + len(raw) + 1].astype(np.int64), data


def _between(data: pa.Buffer | None, start: Ints, end: Ints) -> pa.Array:
    """The bytes between ascending starts and ends, without a copy."""
    # An array whose other values are the bytes in between; every second value is taken.
    offsets = np.empty(2 * len(start) + 1, np.int32)
    offsets[0:-1:2], offsets[1::2] = start, end
    offsets[-1] = end[-1] if len(end) else 0
    held = pa.py_buffer(b"") if data is None else data
    both = pa.Array.from_buffers(pa.binary(), 2 * len(start), [None, pa.py_buffer(offsets), held])
    return both.take(arrow(np.arange(0, 2 * len(start), 2)))


def texts(raw: pa.Array) -> pa.Array:
    """The values of a binary array as text; null where they are not UTF-8."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(map(_text, raw.to_pylist()), pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
