"""A merge of few changes in one Spark task: it reads them, finds the rows that they replace, and writes both files.

Spark's own planning of such a merge costs ten times as much as its work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.iceberg.key_scan import FILE, POSITION, Keys
from jobs.iceberg.key_search import KeySearch
from jobs.iceberg.row_delta_task import RowDeltaTask
from jobs.spark_tasks import Batches
from resources.iceberg_errors import catalog_errors

# Rows of the table that one task looks through: of more, all of the cluster does.
_MOST_ROWS = 50_000_000


class FewChanges(Protocol):
    """Changes that travel to Spark's workers as a description."""

    def read(self) -> pa.Table | None:
        """A row for each key: the table's columns, and ``__op``. None where they need more than themselves."""


@dataclass(frozen=True)
class FewChangesTask:
    """The function of the only task: any row in, one report out; none where it leaves the changes to Spark SQL.

    Attributes:
        keys: names of the key's columns.
        null_safe: null equals null in a key.
    """

    changes: FewChanges
    keys: tuple[str, ...]
    null_safe: bool
    search: KeySearch
    write: RowDeltaTask

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        with catalog_errors(self.write.where):
            changes = self.changes.read()
            if changes is None:
                return
            scan = self.search.scan_for(changes.select(self.keys))
            if sum(file.rows for file in scan.files) > _MOST_ROWS:
                return
            rows = with_places(changes, scan.keys, scan.rows(), self.null_safe)
        yield from self.write(rows.to_batches())


def with_places(changes: pa.Table, keys: Keys, found: pa.Table, null_safe: bool) -> pa.Table:
    """The changes with the places of the rows of their keys, as `sql/spark/row_delta.sql.j2` gives them."""
    names = keys.rows.column_names
    if not null_safe:
        found = found.filter(reduce(pc.and_, [pc.is_valid(found[name]) for name in names]))
    # Each number is of one change, and what is found has one of them.
    change = np.argsort(keys.number(keys.rows.columns))[keys.number(found.select(names).columns)]
    found, change = found.take(pa.array(order := np.argsort(change, kind="stable"))), change[order]
    hit = np.arange(len(change)) - np.searchsorted(change, change) + 1
    others = np.setdiff1d(np.arange(len(changes)), change)
    rows = changes.take(pa.array(np.concatenate([change, others])))
    hits = pa.array(np.concatenate([hit, np.zeros(len(others), np.int64)]))
    own = {
        "__hit": hits,
        "__file": _with_nulls(found[FILE], len(others)),
        "__pos": _with_nulls(found[POSITION], len(others)),
        "__writes": pc.and_(pc.not_equal(rows["__op"], "delete"), pc.less_equal(hits, 1)),
        "__removes": pc.greater(hits, 0),
    }
    return pa.table({**dict(zip(rows.column_names, rows.columns, strict=True)), **own})


def _with_nulls(values: pa.ChunkedArray, count: int) -> pa.Array:
    return pa.concat_arrays([*values.chunks, pa.nulls(count, values.type)])
