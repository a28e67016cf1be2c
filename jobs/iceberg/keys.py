"""The keys that are searched for in a table's data files (`jobs.iceberg.key_search`). Pure over Arrow data."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.iceberg.statistics import Bounds
from jobs.schema.types import as_integers


@dataclass(frozen=True)
class Keys:
    """The keys to find; travels to Spark's workers.

    Attributes:
        rows: a column for each column of the key, under its name in the table.
    """

    rows: pa.Table

    @cached_property
    def _distinct(self) -> list[pa.Array]:
        return [pc.unique(column) for column in self.rows.columns]

    @cached_property
    def _parts(self) -> list[npt.NDArray[np.int64]]:
        """The distinct numbers of the keys by their first column, by their first two, and so on."""
        first, *others = zip(self.rows.columns, self._distinct, strict=True)
        # With one column the numbers are indices into its distinct values.
        parts, before = [np.arange(len(first[1]))], _indices(*first)
        for column, distinct in others:
            # Number again from 0 after each column, so that products do not overflow.
            part, before = np.unique(before * len(distinct) + _indices(column, distinct), return_inverse=True)
            parts.append(part)
        return parts

    def number(self, columns: Sequence[Any]) -> npt.NDArray[np.int64]:
        """For each row the number of its key among the distinct keys, from 0; -1: none of them. Null equals null."""
        rows, found = np.arange(len(columns[0])), np.zeros(len(columns[0]), np.int64)
        for column, distinct, part in zip(columns, self._distinct, self._parts, strict=True):
            places = _indices(column if len(rows) == len(column) else column.take(pa.array(rows)), distinct)
            wanted = np.where(places < 0, -1, found * len(distinct) + places)
            at = np.minimum(np.searchsorted(part, wanted), len(part) - 1)
            same = part[at] == wanted if len(part) else np.zeros(len(rows), bool)
            rows, found = rows[same], at[same]
        numbers = np.full(len(columns[0]), -1, np.int64)
        numbers[rows] = found
        return numbers

    def places_in(self, columns: Sequence[Any]) -> npt.NDArray[np.int64]:
        """The row numbers at which these columns have one of the keys. Null equals null."""
        if len(columns) == 1:
            found = pc.is_in(columns[0], value_set=self._distinct[0])
        else:
            found = pa.array(self.number(columns) >= 0)
        places: npt.NDArray[np.int64] = pc.indices_nonzero(found).to_numpy().astype(np.int64)
        return places

    @cached_property
    def _ordered(self) -> list[list[Any]]:
        return [sorted(value for value in as_integers(one).to_pylist() if value is not None) for one in self._distinct]

    @cached_property
    def _with_null(self) -> list[bool]:
        return [distinct.null_count > 0 for distinct in self._distinct]

    def may_be_between(self, bounds: Sequence[Bounds]) -> bool:
        """Whether a file or row group with these bounds of the columns may hold one of the keys."""
        if not len(self.rows):
            return False
        for bound, ordered, with_null in zip(bounds, self._ordered, self._with_null, strict=True):
            if bound is None or with_null or not isinstance(bound[0], type(ordered[0])):
                continue
            if bisect_left(ordered, bound[0]) >= bisect_right(ordered, bound[1]):
                return False
        return True


def _indices(column: Any, values: pa.Array) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = pc.fill_null(pc.index_in(column, value_set=values), -1).to_numpy().astype(np.int64)
    return found
