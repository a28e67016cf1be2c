"""Landed changes as rows of a destination, reduced to what a table needs of each key. SQL for Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobs.batch import LandedBatch
from jobs.changes.columns import operations, row_operations
from jobs.changes.landed_rows import LandedRows
from jobs.changes.routing import RouteFilter, route_filter
from jobs.changes.unchanged_columns import unchanged_parameters
from jobs.lineage import of_one_meaning
from jobs.spec.columns import RowColumn
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from jobs.spec.unchanged_columns import leaves_unchanged
from sql import render

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def truncated_below(spec: PipelineSpec, table: Table, newest: LandedBatch) -> int | None:
    """The `order_by` value below which a table that has merged up to this batch holds no rows (the source was
    truncated). None: the table ignores truncations, as it ignores deletes, or there was none."""
    counts = table.loses_rows and spec.changes.ordered_by
    return newest.watermark.truncated_below if counts else None


@dataclass(frozen=True)
class Reduction:
    """Which landed rows a table gets, and how the changes of one key are reduced to one.

    Attributes:
        table, snapshot: of the intermediate table.
        operations: those of the changes that the table takes.
        row_operations: those that write a row. A delete among them is an insert in `__op`.
        keys: names of the key columns; without a key every change becomes a row.
        order_by: the column that orders the changes of one key; None: batch and position do.
        route: only rows that are routed to the table; None: all.
        unchanged: columns that some changes omit.
        touched: only keys with a change in these batches (first, last); in mode append only records of these batches.
        revised: use each record's newest reading (`revision`) up to the last batch. False: first readings only.
        since: use no readings of earlier batches, whose key or order was another; None: there are none.
        with_time: also return the record's time, as ``__bm_time``.
        truncated_below: changes with a smaller `order_by` value are left out (`jobs.watermark`); None: none are.
    """

    table: tuple[str, ...]
    snapshot: int
    first: int
    last: int
    mode: str
    operations: tuple[str, ...]
    row_operations: tuple[str, ...]
    columns: tuple[RowColumn, ...]
    keys: tuple[str, ...]
    order_by: str | None
    route: RouteFilter | None
    unchanged: tuple[RowColumn, ...] = ()
    touched: tuple[int, int] | None = None
    revised: bool = False
    since: int | None = None
    with_time: bool = False
    truncated_below: int | None = None

    @property
    def landed(self) -> str:
        """SQL of the landed rows: the table's columns, and ``__op, __order, __batch, __i, __kafka``."""
        return self._render("landed_rows")

    @property
    def judged_places(self) -> str:
        """SQL of the records that are checked again with these changes: ``topic, partition, offset, stands_in``.

        `stands_in` is the record's batch. A table that refused their rows may accept them now.
        """
        return self._render("judged_places")

    def _render(self, template: str, **more: object) -> str:
        """A template of these changes, whose `order_by` is a path in landed rows."""
        order_by = ("value", self.order_by) if self.order_by else None
        return render("spark", template, **{**vars(self), "order_by": order_by, **more})

    def with_unchanged(self, spark: SparkSession) -> Reduction:
        """This reduction with the columns that some of its changes omit.

        Queried before each merge: most batches have none and merge by a simpler statement.
        """
        text = render("spark", "unchanged_columns", table=self.table, snapshot=self.snapshot)
        names = {row["name"] for row in spark.sql(text, args={"first": self.first, "last": self.last}).collect()}
        return replace(self, unchanged=tuple(c for c in self.columns if c.path[0] == "value" and c.path[-1] in names))

    def of(self, rows: str) -> str:
        """SQL that reduces landed rows: the last change per key; in mode `delete` each key's last delete and the rows
        after it; without a key, and in mode `append`, all rows.

        If records were read again, it may also return older readings (`__op` is ``stays``): the table may hold such a
        row and keeps it (`sql/spark/superseded.sql.j2`).
        """
        if self.unchanged:
            rows = self._render("carried_forward", rows=rows)
        one_a_key = self.mode.startswith("upsert") and bool(self.keys)
        again = self.mode == "delete" or one_a_key
        superseded = self.revised and (again if self.touched else self.mode != "upsert_delete")
        if superseded:
            rows = self._render("superseded", rows=rows)
        if self.mode == "append" or not self.keys:
            return rows
        if self.mode == "delete":
            return self._render("last_delete_per_key", rows=rows, revised=superseded and self.touched is not None)
        last = self._render("last_change_per_key", rows=rows, revised=superseded)
        if not (superseded and self.touched and self.order_by):
            return last
        return self._render("largest_order", rows=last, keys=[c for c in self.columns if c.is_key])

    def rows(self, spark: SparkSession) -> DataFrame:
        """The reduced changes."""
        return spark.sql(self.of(self.landed), args=dict(self.parameters))

    @property
    def parameters(self) -> Mapping[str, object]:
        """Values of the statements' named parameters."""
        route = self.route.parameters if self.route else {}
        return {
            "first": self.first,
            "last": self.last,
            **route,
            **unchanged_parameters([c.path[-1] for c in self.unchanged]),
        }


@dataclass(frozen=True)
class Reductions:
    """How landed changes become a destination table's rows.

    Attributes:
        columns: of the table's rows.
    """

    spec: PipelineSpec
    table: Table
    columns: Sequence[RowColumn]
    landed: LandedRows

    def merge(self, first: int, newest: LandedBatch) -> Reduction:
        """What the table gets from batch `first` to the newest one, or from one batch that revises others."""
        if newest.batch.revises is not None:
            return self.replay(newest.number, [newest])
        return self._made(first, newest)

    def replay(self, committed: int, batches: Sequence[LandedBatch]) -> Reduction:
        """What a table that has merged up to batch `committed` gets from a replay of these batches.

        The newest change, up to the committed batch, of each key that the batches touched. In mode append only the
        records of the batches: the table gets those whose coordinates it lacks.
        """
        known = [b for b in self.landed.landed().batches if b.number <= committed]
        # An earlier batch may have the newest change by `order_by`, or a value that later changes omit.
        of_all = self.table.has_unique_key and (self.spec.changes.ordered_by or leaves_unchanged(self.spec, self.table))
        read = [*(of_one_meaning(known) if of_all else ()), *batches]
        whole = self.state(known, min(batch.number for batch in read))
        touched = (batches[0].number, batches[-1].number)
        if self.table.mode == "append" and not whole.revised:
            return replace(whole, last=touched[1])
        return replace(whole, touched=touched)

    def state(self, batches: Sequence[LandedBatch], first: int) -> Reduction:
        """What a table that has merged these batches holds from batch `first` on, and from all batches they revise.

        Also older readings of records that were read again, if the table's mode keeps their rows (`__op` is
        ``stays``): they may be in the table or not. Readings by batches of another meaning do not count: those of
        records that were read again since then have their places among them.
        """
        meant = of_one_meaning(batches)
        revises = [b.batch.revises for b in meant if b.batch.revises is not None]
        made = self._made(min(first, *revises) if revises else first, batches[-1])
        since = meant[0].number if revises and len(meant) < len(batches) else None
        return replace(made, revised=bool(revises), since=since)

    def _made(self, first: int, newest: LandedBatch) -> Reduction:
        spec, table = self.spec, self.table
        return Reduction(
            table=self.landed.path,
            snapshot=self.landed.snapshot_with(newest),
            first=first,
            last=newest.number,
            mode=table.mode,
            operations=operations(table),
            row_operations=row_operations(table),
            columns=tuple(self.columns),
            keys=tuple(c.name for c in self.columns if c.is_key),
            order_by=spec.changes.ordered_by,
            route=route_filter(spec, table),
            truncated_below=truncated_below(spec, table, newest),
        )
