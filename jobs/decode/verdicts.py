"""The outcome of each record of an array, shared by decoding, transform and landing."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, DecodeError
from jobs.schema.found_fields import NOTHING_FOUND

PROBLEM = pa.struct([("stage", pa.string()), ("kind", pa.string()), ("message", pa.string())])

COLUMNS = pa.schema([("problem", PROBLEM), ("filtered", pa.bool_()), ("unknown", pa.binary())])
"""The columns with which verdicts travel beside the records."""


class Verdicts:
    """Which records are bad, which are filtered, and which omit columns. All others are plain rows.

    A record keeps its first error. A filtered record is dropped on purpose, so it has no error, whatever else is found.

    Attributes:
        errors: from the index of each bad record to its error.
        filtered: indexes of the records that are dropped on purpose.
        unchanged: from the index of each good record that omits columns to their names.
        unknown: fields that have no column.
        truncated_below: the largest `order_by` value of truncations among the records (`jobs.watermark`).
    """

    def __init__(self, rows: int, errors: Mapping[int, DecodeError] | None = None) -> None:
        self._rows = rows
        self.errors: dict[int, DecodeError] = dict(errors or {})
        self.filtered: set[int] = set()
        self.unchanged: dict[int, tuple[str, ...]] = {}
        self.unknown = NOTHING_FOUND
        self.truncated_below: int | None = None

    def refuse(self, row: int, error: DecodeError) -> None:
        if row not in self.filtered:
            self.errors.setdefault(row, error)
            self.unchanged.pop(row, None)

    def refuse_where(self, mask: pa.Array, error: DecodeError) -> None:
        for row in _rows_of(mask):
            self.refuse(row, error)

    def filter(self, rows: Iterable[int]) -> None:
        for row in rows:
            self.filtered.add(row)
            self.errors.pop(row, None)
            self.unchanged.pop(row, None)

    def filter_where(self, mask: pa.Array, but: Collection[int] = ()) -> None:
        self.filter([row for row in _rows_of(mask) if row not in but])

    def leave_unchanged_where(self, mask: pa.Array, column: str) -> None:
        for row in _rows_of(mask):
            if row not in self.errors and row not in self.filtered:
                self.unchanged[row] = (*self.unchanged.get(row, ()), column)

    def add(self, decoded: Decoded, stage: str = "", at: npt.NDArray[np.int64] | None = None) -> None:
        """Adds what a decoder has found.

        Args:
            stage: which part of the record was decoded.
            at: the records' indexes of the decoded values; None: all records were decoded.
        """
        places = range(self._rows) if at is None else at
        self.unknown += decoded.unknown
        for index, error in decoded.errors.items():
            self.refuse(int(places[index]), error.at(stage))
        self.filter(int(places[index]) for index in decoded.filtered)
        for index, columns in decoded.unchanged.items():
            if (row := int(places[index])) not in self.errors and row not in self.filtered:
                self.unchanged[row] = columns

    def refuse_filtered(self, error: DecodeError) -> None:
        """Makes the filtered records bad ones, with this error."""
        rows, self.filtered = self.filtered, set()
        for row in rows:
            self.refuse(row, error)

    def good(self) -> pa.Array | None:
        """True for each record that is a row; None if all are."""
        if not self.errors and not self.filtered:
            return None
        return pa.array([row not in self.errors and row not in self.filtered for row in range(self._rows)])

    def decoded(self, values: pa.Array) -> Decoded:
        return Decoded(values, self.errors, frozenset(self.filtered), self.unchanged, self.unknown)

    def columns(self) -> dict[str, pa.Array]:
        """Errors, filtered records, and (in the first row) unknown fields, as columns (`COLUMNS`)."""
        errors = [vars(self.errors[row]) if row in self.errors else None for row in range(self._rows)]
        reported = [pickle.dumps(self.unknown)] if self.unknown and self._rows else []
        return {
            "problem": pa.array(errors, PROBLEM),
            "filtered": pa.array([row in self.filtered for row in range(self._rows)], pa.bool_()),
            "unknown": pa.array([*reported, *[None] * (self._rows - len(reported))], pa.binary()),
        }

    @classmethod
    def from_columns(cls, problems: pa.Array, filtered: pa.Array, unknown: pa.Array) -> Verdicts:
        """The inverse of `columns`."""
        found = cls(len(problems))
        for fields in unknown.drop_null().to_pylist():
            found.unknown += pickle.loads(fields)
        for row in _rows_of(pc.is_valid(problems)):
            found.refuse(row, DecodeError(**problems[row].as_py()))
        found.filter_where(filtered)
        return found


def _rows_of(mask: pa.Array) -> list[int]:
    """The indexes at which the mask is true."""
    rows: list[int] = pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()
    return rows
