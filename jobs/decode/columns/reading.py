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
from jobs.decode.registered import LEAST_BYTES, prefix_size
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


def by_schema_id(raw: pa.Array, beyond: int = 0) -> Iterator[tuple[bytes, Rows]]:
    """What many records have in common that name the same schema, with so many bytes `beyond`, each with their rows."""
    for shortest, rows in by_prefix(raw, LEAST_BYTES + beyond):
        size = prefix_size(shortest)
        if size == LEAST_BYTES:
            yield shortest, rows
        elif size:
            yield from ((prefix, rows[own]) for prefix, own in by_prefix(chosen(raw, rows), size + beyond))


def schema_prefixes(raw: pa.Array) -> pa.DictionaryArray:
    """The bytes of each record that name its schema; its first bytes if it names none."""
    shortest = pc.binary_slice(raw, 0, LEAST_BYTES).dictionary_encode()
    sizes = [prefix_size(prefix) for prefix in shortest.dictionary.to_pylist()]
    found = shortest
    for size in {*sizes} - {0, LEAST_BYTES}:
        own = pa.array([one == size for one in sizes], pa.bool_()).take(shortest.indices)
        found = pc.if_else(own, pc.binary_slice(raw, 0, size), found.cast(pa.binary()))
    return found if found is shortest else found.dictionary_encode()


def distinct_prefixes(raw: pa.Array) -> Iterator[bytes]:
    """All that `schema_prefixes` would find of records that name a schema, each once."""
    shortest = pc.unique(pc.binary_slice(raw, 0, LEAST_BYTES)).drop_null().to_pylist()
    for size in sorted({prefix_size(prefix) for prefix in shortest}):
        if size == LEAST_BYTES:
            yield from (prefix for prefix in shortest if prefix_size(prefix) == size)
        elif size:
            firsts = {prefix[:1] for prefix in shortest if prefix_size(prefix) == size}
            own = raw.filter(pc.is_in(pc.binary_slice(raw, 0, 1), value_set=pa.array(sorted(firsts), raw.type)))
            yield from pc.unique(pc.binary_slice(own, 0, size)).to_pylist()
