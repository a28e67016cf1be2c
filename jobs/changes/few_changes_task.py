"""A merge in one Spark task or a few: each has its share of the keys, finds the rows that they replace, and writes.

For a small merge, Spark SQL's planning costs ten times as much as the work; for a larger one, its rows in the JVM do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.changes.last_changes import LastChanges
from jobs.iceberg.key_search import FILE, POSITION, KeySearch
from jobs.iceberg.keys import Keys
from jobs.iceberg.row_delta_task import RowDeltaTask
from jobs.spark.spark_tasks import Batches, numbers

# The largest number of the table's rows that one task scans; above it Spark SQL finds the rows.
_MOST_ROWS = 50_000_000
# So many scans of such a table cost no more than a join ...
_MOST_SCANS = 8
# ... and so many openings of files: a join opens each once.
_MOST_OPENED = 20_000


@dataclass(frozen=True)
class FewChangesTask:
    """The function of the only task: returns one report, or none if Spark SQL has to make the merge.

    Attributes:
        keys: names of the key's columns.
        null_safe: null equals null in a key.
    """

    changes: LastChanges
    keys: tuple[str, ...]
    null_safe: bool
    search: KeySearch
    write: RowDeltaTask

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for _ in numbers(batches):
            changes = self.changes.read()
            if changes is not None and (rows := self.placed(changes)) is not None:
                yield from self.write(rows.to_batches())

    @property
    def scans_too_much(self) -> bool:
        """Whether the table is too large, or has too many files, for each of several tasks to scan it."""
        search, shares = self.search, self.changes.shares
        is_large = search.file_rows * max(1, shares / _MOST_SCANS) > _MOST_ROWS
        return is_large or len(search.files) * shares > _MOST_OPENED

    def placed(self, changes: pa.Table) -> pa.Table | None:
        """The changes with file and position of the rows that they replace; None: Spark SQL has to find these."""
        scan = self.search.scan_for(changes.select(self.keys))
        if scan.search.file_rows > _MOST_ROWS:
            return None
        return with_places(changes, scan.keys, scan.rows(), self.null_safe)


def with_places(changes: pa.Table, keys: Keys, found: pa.Table, null_safe: bool) -> pa.Table:
    """The changes with file and position of the rows of their keys, as `sql/spark/row_delta.sql.j2` returns them."""
    names = keys.rows.column_names
    if not null_safe:
        found = found.filter(reduce(pc.and_, [pc.is_valid(found[name]) for name in names]))
    # Each change has its own key number, and each row found has the number of one change.
    change = np.argsort(keys.number(keys.rows.columns))[keys.number(found.select(names).columns)]
    found, change = found.take(pa.array(order := np.argsort(change, kind="stable"))), change[order]
    hit = np.arange(len(change)) - np.searchsorted(change, change) + 1
    others = np.flatnonzero(np.bincount(change, minlength=len(changes)) == 0)
    rows = changes.take(pa.array(np.concatenate([change, others])))
    hits = pa.array(np.concatenate([hit, np.zeros(len(others), np.int64)]))
    own = {
        "__hit": hits,
        "__bm_file": _with_nulls(found[FILE], len(others)),
        "__bm_pos": _with_nulls(found[POSITION], len(others)),
        "__bm_writes": pc.and_(pc.not_equal(rows["__op"], "delete"), pc.less_equal(hits, 1)),
        "__bm_removes": pc.greater(hits, 0),
    }
    return pa.table({**dict(zip(rows.column_names, rows.columns, strict=True)), **own})


def _with_nulls(values: pa.ChunkedArray, count: int) -> pa.Array:
    return pa.concat_arrays([*values.chunks, pa.nulls(count, values.type)])
