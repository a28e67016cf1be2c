"""Joins the results of fast decoders, for as many records as possible, with those of the row decoder for the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, DecodeError
from jobs.decode.columns.arrays import arrow
from jobs.decode.verdicts import Verdicts
from jobs.schema.found_fields import NOTHING_FOUND, FoundFields

_ROWS = 16_384  # the most rows of one piece
_BYTES = 64 << 20  # the most bytes of one piece
SMALL = 48  # up to this many records, decoding one by one is as fast as decoding together

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """Some records of an array, all of them good.

    Attributes:
        rows: their indexes.
        unknown: fields that have no column.
    """

    rows: Rows
    values: pa.Array
    unknown: FoundFields = NOTHING_FOUND


def judged(raw: pa.Array, parts: Sequence[Part], judge: Callable[[pa.Array], Decoded]) -> Decoded:
    """The results for all records of `raw`; `judge` decodes those that are in no part."""
    open_ = np.ones(len(raw), np.bool_)
    for part in parts:
        open_[part.rows] = False
    rest = np.flatnonzero(open_)
    if len(rest) == len(raw):
        return judge(raw)
    found = [(part.rows, Decoded(part.values, {}, unknown=part.unknown)) for part in parts]
    return assembled([*found, (rest, judge(raw.take(arrow(rest))))] if len(rest) else found)


def assembled(found: Sequence[tuple[Rows, Decoded]]) -> Decoded:
    """The results of some rows of an array after the other (each ascending, together all of them), in its order."""
    verdicts = Verdicts(sum(len(rows) for rows, _ in found))
    for rows, decoded in found:
        verdicts.add(decoded, at=rows)
    full = [(rows, decoded.values) for rows, decoded in found if len(rows)]
    if len(full) == 1:
        return verdicts.decoded(full[0][1])
    order = np.argsort(np.concatenate([rows for rows, _ in full]), kind="stable")
    return verdicts.decoded(pa.concat_arrays([values for _, values in full]).take(arrow(order)))


def joined(decoded: Iterable[Decoded]) -> Decoded:
    """The results of the pieces of one array, joined in order."""
    values: list[pa.Array] = []
    errors: dict[int, DecodeError] = {}
    unknown, start = NOTHING_FOUND, 0
    for piece in decoded:
        values.append(piece.values)
        errors.update({start + index: error for index, error in piece.errors.items()})
        unknown += piece.unknown
        start += len(piece.values)
    return Decoded(pa.concat_arrays(values), errors, unknown=unknown)


def pieces(raw: pa.Array) -> Iterator[pa.Array]:
    """Divides an array into binary arrays of at most `_ROWS` rows and `_BYTES` bytes (but one record); at least one."""
    todo = [pc.cast(raw, pa.binary())]
    while todo:
        piece = todo.pop()
        if len(piece) > 1 and (len(piece) > _ROWS or piece.nbytes > _BYTES):
            half = _ROWS if len(piece) > _ROWS else len(piece) // 2
            todo += [piece[half:], piece[:half]]
        else:
            yield piece
