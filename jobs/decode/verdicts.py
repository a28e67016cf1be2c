"""What becomes of each record of an array: the one account that decoding, transform and landing share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, DecodeError

PROBLEM = pa.struct([("stage", pa.string()), ("kind", pa.string()), ("message", pa.string())])


class Verdicts:
    """Which records are bad, which are left out, and which leave columns as they were. All others are plain rows.

    The first error of a record stays. A record that is left out on purpose has no error, whatever else is found.

    Attributes:
        errors: index of each bad record to its error.
        skipped: indexes of the records that are left out.
        unchanged: index of each good record that leaves columns as they were, to the names of those.
    """

    def __init__(self, rows: int, errors: Mapping[int, DecodeError] | None = None) -> None:
        self._rows = rows
        self.errors: dict[int, DecodeError] = dict(errors or {})
        self.skipped: set[int] = set()
        self.unchanged: dict[int, tuple[str, ...]] = {}

    def refuse(self, row: int, error: DecodeError) -> None:
        if row not in self.skipped:
            self.errors.setdefault(row, error)
            self.unchanged.pop(row, None)

    def refuse_where(self, mask: pa.Array, error: DecodeError) -> None:
        for row in _rows_of(mask):
            self.refuse(row, error)

    def skip(self, rows: Iterable[int]) -> None:
        for row in rows:
            self.skipped.add(row)
            self.errors.pop(row, None)
            self.unchanged.pop(row, None)

    def skip_where(self, mask: pa.Array) -> None:
        self.skip(_rows_of(mask))

    def leave_unchanged_where(self, mask: pa.Array, column: str) -> None:
        for row in _rows_of(mask):
            if row not in self.errors and row not in self.skipped:
                self.unchanged[row] = (*self.unchanged.get(row, ()), column)

    def add(self, decoded: Decoded, stage: str = "", at: Sequence[int] | None = None) -> None:
        """What a decoder has found.

        Args:
            stage: which part of the record was decoded.
            at: where the decoded values stand among the records; None: they are all records.
        """
        places = range(self._rows) if at is None else at
        for index, error in decoded.errors.items():
            self.refuse(places[index], error.at(stage))
        self.skip(places[index] for index in decoded.skipped)
        for index, columns in decoded.unchanged.items():
            if places[index] not in self.errors and places[index] not in self.skipped:
                self.unchanged[places[index]] = columns

    def refuse_skipped(self, error: DecodeError) -> None:
        """Makes bad records of those that are left out."""
        rows, self.skipped = self.skipped, set()
        for row in rows:
            self.refuse(row, error)

    def good(self) -> pa.Array | None:
        """True per record that is a row; None where all are."""
        if not self.errors and not self.skipped:
            return None
        return pa.array([row not in self.errors and row not in self.skipped for row in range(self._rows)])

    def decoded(self, values: pa.Array) -> Decoded:
        return Decoded(values, self.errors, frozenset(self.skipped), self.unchanged)

    def columns(self) -> tuple[pa.Array, pa.Array]:
        """Errors (`PROBLEM`) and left-out records (boolean) as columns beside the records."""
        errors = [vars(self.errors[row]) if row in self.errors else None for row in range(self._rows)]
        return pa.array(errors, PROBLEM), pa.array([row in self.skipped for row in range(self._rows)], pa.bool_())

    @classmethod
    def from_columns(cls, problems: pa.Array, skipped: pa.Array) -> Verdicts:
        """The inverse of `columns`."""
        found = cls(len(problems))
        for row in _rows_of(pc.is_valid(problems)):
            found.refuse(row, DecodeError(**problems[row].as_py()))
        found.skip_where(skipped)
        return found


def _rows_of(mask: pa.Array) -> list[int]:
    """Where the mask is true."""
    rows: list[int] = pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()
    return rows
