"""The landed rows of one load, as Arrow: read from the landed files; for a replay of touched keys, found by Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.changes.columns import CHANGES, KEPT
from jobs.changes.files import LandedFiles, LandedSlice, in_range
from jobs.changes.routing import route_filter
from jobs.destinations.base import MergeContext
from jobs.destinations.bigquery.columns import Column
from jobs.destinations.bigquery.flush import Chunk, Flush
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.refusal import BATCH, DELETED, OFFSET, PARTITION, TOPIC
from resources.spark import spark_errors
from sql import render

_PLACES = {
    TOPIC: ("kafka", "topic"),
    PARTITION: ("kafka", "partition"),
    OFFSET: ("kafka", "offset"),
    BATCH: ("batchNumber",),
}
# Offsets that are read at once, so that memory does not follow the size of a load.
_PART_ROWS = 250_000


@dataclass(frozen=True)
class ChunkRows:
    """Rows ``c0, c1, …, op[, orderBy][, kept], partitionTime, i, batchNumber`` of the chunks of a flush.

    Attributes:
        order_by: path of the named order in a landed row, None without.
        keeps: the changes say which columns they leave as they were.
        touched: only keys with a change in these batches (replay).
        judged: rows are judged before they are sent: they also say where they are from, as `Refusal.fit` needs it.
    """

    context: MergeContext
    table: BigQueryTable
    columns: Sequence[Column]
    order_by: tuple[str, ...] | None
    where: str
    keeps: bool = False
    touched: tuple[int, int] | None = None
    judged: bool = False

    def read(self, chunk: Chunk, flush: Flush) -> Iterator[pa.Table]:
        """The rows of a chunk in parts, at least one; while one is worked on, the next is read."""
        if self.touched is not None:
            with spark_errors(self.where):
                yield self._of_touched_keys(chunk, flush).toArrow()
            return
        files, parts = self._files(flush), flush.parts(chunk, _PART_ROWS)
        with ThreadPoolExecutor(1) as ahead:
            following = ahead.submit(_landed, files, parts[0])
            for part in parts[1:]:
                landed, following = following.result(), ahead.submit(_landed, files, part)
                yield self._select(landed)
            yield self._select(following.result())

    def files(self, flush: Flush) -> list[str]:
        """The landed files that hold the rows of a flush and nothing else, for a table that takes all landed rows."""
        return self._files(flush).holding_only(flush.batches)

    def count(self, flush: Flush) -> int:
        """How many landed rows of a flush the table takes."""
        if route_filter(self.context.spec, self.table) is None:
            return flush.rows
        files = self._files(flush)
        return sum(len(_landed(files, chunk)) for chunk in flush.chunks())

    def _files(self, flush: Flush) -> LandedFiles:
        files = LandedFiles.up_to(flush.last, self.context.intermediate)
        return files.taking(CHANGES, route_filter(self.context.spec, self.table))

    def _select(self, landed: LandedSlice) -> pa.Table:
        rows = {f"c{n}": landed.at(c.source) for n, c in enumerate(self.columns)}
        rows["op"] = landed.at(["op"])
        if self.order_by:
            rows["orderBy"] = landed.at(self.order_by)
        if self.keeps:
            rows[KEPT.name] = landed.at([KEPT.name])
        rows |= {name: landed.at([name]) for name in ("partitionTime", "i", "batchNumber")}
        if self.judged:
            rows |= {name: landed.at(path) for name, path in _PLACES.items()}
            rows[DELETED] = pc.equal(rows["op"], "delete").cast(pa.int32())
        return pa.table(rows)

    def _of_touched_keys(self, chunk: Chunk, flush: Flush) -> DataFrame:
        route = route_filter(self.context.spec, self.table)
        text = render(
            "spark",
            "staged_rows",
            columns=[c.source for c in self.columns],
            order_by=self.order_by,
            keeps=self.keeps,
            table=self.context.intermediate.path,
            snapshot=self.context.intermediate.snapshot_with(flush.last),
            touched=self.touched,
            route=route,
            places=self.judged,
        )
        places = {
            "first_batch": chunk.first_batch,
            "first_i": chunk.first_i,
            "last_batch": chunk.last_batch,
            "end_i": chunk.end_i,
            **(route.parameters if route else {}),
        }
        rows = self.context.spark.sql(text, args=places)
        if not self.judged:
            return rows
        return rows.withColumns(
            {
                **{name: F.col(".".join(path)) for name, path in _PLACES.items()},
                DELETED: (F.col("op") == "delete").cast("int"),
            }
        ).drop("kafka")


def _landed(files: LandedFiles, chunk: Chunk) -> LandedSlice:
    return files.read(in_range(chunk.first_batch, chunk.first_i, chunk.last_batch, chunk.end_i))
