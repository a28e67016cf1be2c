"""Landed rows as columns of the destination: read from landed files, or for a replay reduced by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.changes.columns import POSITIONS, UNCHANGED
from jobs.changes.files import LandedSlice
from jobs.changes.reduction import Reduction
from jobs.destinations.bigquery.columns import Column
from jobs.destinations.refusal import BATCH, LANDED_AT, OFFSET, PARTITION, SENT_DELETED, TOPIC
from jobs.spec.columns import RowColumn
from sql import quote

_LANDED = ("partitionTime", "i", "batchNumber")


@dataclass(frozen=True)
class RowShape:
    """Rows ``c0, c1, …, op[, orderBy][, kept], partitionTime, i, batchNumber``; travels to Spark's workers.

    Attributes:
        order_by: path of the named order in a landed row, None without.
        names_unchanged: rows have the names of the columns that a change leaves as they were.
        judged: rows are checked before they are loaded, so they have coordinates, as `Refusal.fit` needs them.
        deletes_are_rows: a delete is an insert, as it is in a `Reduction`.
    """

    columns: Sequence[Column]
    order_by: tuple[str, ...] | None
    names_unchanged: bool = False
    judged: bool = False
    deletes_are_rows: bool = False

    @property
    def _landed(self) -> Mapping[str, tuple[str, ...]]:
        """Where in a landed row each column is."""
        rows = {f"c{n}": c.source for n, c in enumerate(self.columns)}
        order = {"orderBy": self.order_by} if self.order_by else {}
        kept = {UNCHANGED.name: (UNCHANGED.name,)} if self.names_unchanged else {}
        places = LANDED_AT if self.judged else {}
        return {**rows, "op": ("op",), **order, **kept, **{name: (name,) for name in _LANDED}, **places}

    @property
    def paths(self) -> list[tuple[str, ...]]:
        """The parts of landed rows that it needs."""
        return list(self._landed.values())

    def of(self, landed: LandedSlice) -> pa.Table:
        rows = {name: landed.plain(path) for name, path in self._landed.items()}
        rows["op"] = landed.operations(self.deletes_are_rows)
        if self.judged:
            rows[SENT_DELETED] = pc.equal(rows["op"], "delete").cast(pa.int32())
        return pa.table(rows)

    def replayed(self, spark: SparkSession, wanted: Reduction, batch: int) -> DataFrame:
        """The reduced rows of a replay, whatever batches they are from.

        All get the number `batch`, and an `i` that keeps their order. Rows that a table of mode `delete`
        may hold and keeps (``stays``) get a negative one.
        """
        if self.names_unchanged:
            wanted = wanted.with_unchanged(spark)
        kept = [F.when(F.col(f"__unchanged.c{n}"), F.lit(c.path[-1])) for n, c in enumerate(wanted.unchanged)]
        names = F.filter(F.array(*kept), lambda name: name.isNotNull()) if kept else F.lit(None).cast("array<string>")
        place = F.col("__batch") * POSITIONS + F.col("__i")
        return wanted.rows(spark).select(
            *(_payload(c).alias(f"c{n}") for n, c in enumerate(wanted.columns)),
            F.col("__op").alias("op"),
            *([F.col("__order").alias("orderBy")] if self.order_by else []),
            *([names.alias(UNCHANGED.name)] if self.names_unchanged else []),
            F.col("__bm_time").alias("partitionTime"),
            F.when(F.col("__op") == "stays", -1 - place).otherwise(place).alias("i"),
            F.lit(batch).cast("bigint").alias("batchNumber"),
            *(_origin() if self.judged else []),
        )


def _payload(column: RowColumn) -> SparkColumn:
    """A column's value; null in rows that are only there to be kept (``stays``), so that they are not checked."""
    found = F.col(quote("spark", column.name))
    return F.when(F.col("__op") != "stays", found) if column.path[0] == "value" else found


def _origin() -> list[SparkColumn]:
    """The coordinates of a row, as `Refusal.fit` needs them."""
    kafka = F.col("__kafka")
    places = {TOPIC: kafka["topic"], PARTITION: kafka["partition"], OFFSET: kafka["offset"], BATCH: F.col("__batch")}
    deleted = (F.col("__op") == "delete").cast("int").alias(SENT_DELETED)
    return [*(place.alias(name) for name, place in places.items()), deleted]
