"""Reads records column by column to values of a declared type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.columns.arrays import arrow
from jobs.decode.columns.assembly import Read
from jobs.decode.columns.convert import Convert
from jobs.decode.columns.cursors import Cursors, Mask
from jobs.decode.parts import SMALL, Part, Rows
from jobs.schema.found_fields import NOTHING_FOUND, FoundFields


@dataclass(frozen=True)
class InStep:
    """How records of one schema are read.

    Attributes:
        read: reads each record to its end.
        convert: converts what was read to the declared type.
    """

    read: Read
    convert: Convert

    def parts(self, raw: pa.Array, rows: Rows, start: int, undeclared: FoundFields) -> list[Part]:
        """Those of these rows that can be read (`jobs.decode.of_schema.Bulk`)."""
        cursors = Cursors.of_records(chosen(raw, rows))
        cursors.advance(start)
        values = self.read(cursors)
        return [converted(values, rows, self.convert, cursors.good & (cursors.at == cursors.end), undeclared)]


def chosen(raw: pa.Array, rows: Rows) -> pa.Array:
    """The records in these rows."""
    return raw if len(rows) == len(raw) else raw.take(arrow(rows))


def converted(values: pa.Array, rows: Rows, convert: Convert, good: Mask | None, undeclared: FoundFields) -> Part:
    """Converts what was read of these rows to the declared type, without rows that are not good (None: all are)."""
    found, bad = convert(values)
    good = np.ones(len(rows), np.bool_) if good is None else good
    good[bad] = False
    if not good.all():
        rows, found = rows[good], found.filter(arrow(good))
    records = len(found) - found.null_count
    return Part(rows, found, undeclared.times(records) if records else NOTHING_FOUND)


def tombstones(raw: pa.Array, kind: pa.DataType) -> Part:
    rows = np.flatnonzero(raw.is_null().to_numpy(zero_copy_only=False))
    return Part(rows, pa.nulls(len(rows), kind))


def others(raw: pa.Array, part: Part) -> Rows:
    """The rows that are not in the part."""
    return np.setdiff1d(np.arange(len(raw)), part.rows, assume_unique=True)


def by_prefix(raw: pa.Array, size: int) -> Iterator[tuple[bytes, Rows]]:
    """The prefixes of this size that many records have in common, each with their rows."""
    long = pc.indices_nonzero(pc.greater_equal(pc.binary_length(raw), size)).to_numpy().astype(np.int64)
    prefixes = pc.binary_slice(raw.take(arrow(long)), 0, size).dictionary_encode()
    codes = prefixes.indices.to_numpy()
    for code, prefix in enumerate(prefixes.dictionary.to_pylist()):
        rows = long[codes == code]
        if len(rows) > SMALL:
            yield prefix, rows
