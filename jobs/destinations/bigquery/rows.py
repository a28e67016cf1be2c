"""The landed rows of one load, as Arrow: read from the landed files; for a replay, found by Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.changes.columns import CHANGES, KEPT
from jobs.changes.files import LandedFiles, LandedSlice, in_range
from jobs.changes.reduction import Reduction
from jobs.changes.routing import route_filter
from jobs.destinations.base import MergeContext
from jobs.destinations.bigquery.columns import Column
from jobs.destinations.bigquery.flush import Chunk, Flush
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.refusal import BATCH, DELETED, OFFSET, PARTITION, TOPIC
from resources.spark import spark_errors
from sql import quote

_PLACES = {
    TOPIC: ("kafka", "topic"),
    PARTITION: ("kafka", "partition"),
    OFFSET: ("kafka", "offset"),
    BATCH: ("batchNumber",),
}
# Offsets that are read at once, so that memory does not follow the size of a load.
_PART_ROWS = 250_000
# More than a batch has positions, so that batch and position together are one number in the same order.
_POSITIONS = 2**40


@dataclass(frozen=True)
class ChunkRows:
    """Rows ``c0, c1, …, op[, orderBy][, kept], partitionTime, i, batchNumber`` of the chunks of a flush.

    Attributes:
        order_by: path of the named order in a landed row, None without.
        keeps: the changes say which columns they leave as they were.
        again: instead of the flush's own rows what a replay takes: rows of any batches, reduced. They come with the
            number of the flush's last batch and an `i` that keeps their order.
        judged: rows are judged before they are sent: they also say where they are from, as `Refusal.fit` needs it.
    """

    context: MergeContext
    table: BigQueryTable
    columns: Sequence[Column]
    order_by: tuple[str, ...] | None
    where: str
    keeps: bool = False
    again: Reduction | None = None
    judged: bool = False

    def read(self, chunk: Chunk, flush: Flush) -> Iterator[pa.Table]:
        """The rows of a chunk in parts, at least one; while one is worked on, the next is read."""
        if self.again is not None:
            with spark_errors(self.where):
                yield self._again(self.again, chunk, flush).toArrow()
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

    def _again(self, wanted: Reduction, chunk: Chunk, flush: Flush) -> DataFrame:
        spark = self.context.spark
        if self.keeps:
            wanted = wanted.with_unchanged(spark)
        rows = spark.sql(wanted.of(wanted.landed), args=dict(wanted.parameters))
        # Of mode append the records of one place, of others the changes of one key, are in one load.
        spread = [F.col(quote("spark", name)) for name in wanted.keys] or [F.col("__batch"), F.col("__i")]
        part = rows.where(F.pmod(F.xxhash64(*spread), F.lit(len(flush.chunks()))) == chunk.number)
        kept = [F.when(F.col(f"__kept.c{n}"), F.lit(c.path[-1])) for n, c in enumerate(wanted.unchanged)]
        names = F.filter(F.array(*kept), lambda name: name.isNotNull()) if kept else F.lit(None).cast("array<string>")
        return part.select(
            *(F.col(quote("spark", c.name)).alias(f"c{n}") for n, c in enumerate(wanted.columns)),
            F.col("__op").alias("op"),
            *([F.col("__order").alias("orderBy")] if self.order_by else []),
            *([names.alias(KEPT.name)] if self.keeps else []),
            F.col("__time").alias("partitionTime"),
            (F.col("__batch") * _POSITIONS + F.col("__i")).alias("i"),
            F.lit(flush.last.number).cast("bigint").alias("batchNumber"),
            *(self._origin() if self.judged else []),
        )

    @staticmethod
    def _origin() -> list[SparkColumn]:
        """Where a row is from, as `Refusal.fit` needs it."""
        kafka = F.col("__kafka")
        places = {
            TOPIC: kafka["topic"],
            PARTITION: kafka["partition"],
            OFFSET: kafka["offset"],
            BATCH: F.col("__batch"),
        }
        deleted = (F.col("__op") == "delete").cast("int").alias(DELETED)
        return [*(place.alias(name) for name, place in places.items()), deleted]


def _landed(files: LandedFiles, chunk: Chunk) -> LandedSlice:
    return files.read(in_range(chunk.first_batch, chunk.first_i, chunk.last_batch, chunk.end_i))
