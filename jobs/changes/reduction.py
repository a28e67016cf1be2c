"""Landed changes as rows of a destination, and their reduction to what a table needs of each key, as SQL for Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobs.batch import LandedBatch
from jobs.changes.landed_rows import LandedRows
from jobs.changes.routing import RouteFilter, route_filter
from jobs.changes.unchanged_columns import unchanged_parameters
from jobs.spec.columns import RowColumn
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from sql import render

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def truncated_below(spec: PipelineSpec, table: Table, newest: LandedBatch) -> int | None:
    """The order below which a table has nothing that has everything up to this batch; None: truncations do not count
    there, as deletes do not."""
    counts = table.loses_rows and spec.changes.ordered_by
    return newest.watermark.truncated_below if counts else None


@dataclass(frozen=True)
class Reduction:
    """Which landed rows a table takes, and how changes to one key become one.

    Attributes:
        table, snapshot: of the intermediate table.
        keys: names of the key columns; without any every change stays a row.
        order_by: the column that orders the changes to one key; None for batch and position.
        route: only rows that the table takes; None: all.
        unchanged: columns that some changes leave as they were.
        touched: only keys with a change in these batches (first, last), for mode append only their records.
        revised: records may have several readings (`revision`): the newest up to the last batch counts. Otherwise the
            first ones are taken, as each batch landed them.
        has_revision: the table of landed rows can have several.
        with_time: the record's time is wanted too, as ``__time``.
        truncated_below: changes of a smaller order are left out (`jobs.watermark`); None: none are.
    """

    table: tuple[str, ...]
    snapshot: int
    first: int
    last: int
    mode: str
    columns: tuple[RowColumn, ...]
    keys: tuple[str, ...]
    order_by: str | None
    route: RouteFilter | None
    unchanged: tuple[RowColumn, ...] = ()
    touched: tuple[int, int] | None = None
    revised: bool = False
    has_revision: bool = False
    with_time: bool = False
    truncated_below: int | None = None

    @classmethod
    def of_table(
        cls,
        spec: PipelineSpec,
        table: Table,
        columns: Sequence[RowColumn],
        landed: LandedRows,
        first: int,
        newest: LandedBatch,
    ) -> Reduction:
        """What a destination table takes of batch `first` to the newest one, or of one batch that revises others.

        Args:
            columns: of the table's rows.
        """
        if newest.batch.revises is not None:
            return cls.of_replay(spec, table, columns, landed, newest.number, [newest])
        return cls._made(spec, table, columns, landed, first, newest)

    @classmethod
    def of_replay(
        cls,
        spec: PipelineSpec,
        table: Table,
        columns: Sequence[RowColumn],
        landed: LandedRows,
        committed: int,
        batches: Sequence[LandedBatch],
    ) -> Reduction:
        """What a replay of these batches takes, of a table that has everything up to the batch of number `committed`.

        Of the keys that the batches touched, all changes up to the committed batch: the newest of them is applied. For
        mode append only the records of the batches: of those the table gets the rows whose coordinates it lacks.
        """
        known = [b for b in landed.landed().batches if b.number <= committed]
        whole = cls.of_state(spec, table, columns, landed, known, batches[0].number)
        touched = (batches[0].number, batches[-1].number)
        if table.mode == "append" and not whole.revised:
            return replace(whole, last=touched[1])
        return replace(whole, touched=touched)

    @classmethod
    def of_state(
        cls,
        spec: PipelineSpec,
        table: Table,
        columns: Sequence[RowColumn],
        landed: LandedRows,
        batches: Sequence[LandedBatch],
        first: int,
    ) -> Reduction:
        """What a table that has all these batches takes of batch `first` to the last one, and of all that they revise.

        Also rows (`__op` is ``stays``) whose records say something else since they were read again, where the table
        keeps what it has: they may be there or not.
        """
        revises = [b.batch.revises for b in batches if b.batch.revises is not None]
        made = cls._made(spec, table, columns, landed, min(first, *revises) if revises else first, batches[-1])
        return replace(made, revised=bool(revises))

    @classmethod
    def _made(
        cls,
        spec: PipelineSpec,
        table: Table,
        columns: Sequence[RowColumn],
        landed: LandedRows,
        first: int,
        newest: LandedBatch,
    ) -> Reduction:
        at = landed.snapshot_with(newest)
        return cls(
            table=landed.path,
            snapshot=at.id,
            first=first,
            last=newest.number,
            mode=table.mode,
            columns=tuple(columns),
            keys=tuple(c.name for c in columns if c.is_key),
            order_by=spec.changes.ordered_by,
            route=route_filter(spec, table),
            has_revision=at.has_revision,
            truncated_below=truncated_below(spec, table, newest),
        )

    @property
    def landed(self) -> str:
        """The rows as they were landed: the columns, and ``__op, __order, __batch, __i, __kafka`` beside them."""
        return self._render("landed_rows")

    @property
    def judged_places(self) -> str:
        """Records whose rows are judged again with these changes: ``topic, partition, offset, stands_in`` (a batch)."""
        return self._render("judged_places", first=self.first)

    def _render(self, template: str, **more: object) -> str:
        return render(
            "spark",
            template,
            columns=self.columns,
            order_by=("value", self.order_by) if self.order_by else None,
            table=self.table,
            snapshot=self.snapshot,
            mode=self.mode,
            touched=self.touched,
            route=self.route,
            unchanged=self.unchanged,
            last=self.last,
            revised=self.revised,
            has_revision=self.has_revision,
            with_time=self.with_time,
            truncated_below=self.truncated_below,
            **more,
        )

    def with_unchanged(self, spark: SparkSession) -> Reduction:
        """The same, with those of the columns that some of its changes leave as they were.

        Asked before each merge, since most batches have none and then merge by a simpler statement.
        """
        text = render("spark", "unchanged_columns", table=self.table, snapshot=self.snapshot)
        names = {row["name"] for row in spark.sql(text, args={"first": self.first, "last": self.last}).collect()}
        return replace(self, unchanged=tuple(c for c in self.columns if c.path[0] == "value" and c.path[-1] in names))

    def of(self, rows: str) -> str:
        """One change per key of these landed rows; in the mode `delete` the rows and the last delete of each key.

        What is read again has besides, in the mode `delete`, other readings of rows (`__op` is ``stays``): the table
        may have a row as one of them says, and keeps it.
        """
        if self.unchanged:
            rows = render("spark", "carried_forward", rows=rows, keys=self.keys, unchanged=self.unchanged)
        one_a_key = self.mode.startswith("upsert") and bool(self.keys)
        again = self.mode == "delete" or one_a_key
        superseded = self.revised and (again if self.touched else self.mode != "upsert_delete")
        if superseded:
            rows = self._render("superseded", rows=rows)
        if self.mode == "append" or not self.keys:
            return rows
        if self.mode == "delete":
            return render(
                "spark",
                "last_delete_per_key",
                rows=rows,
                keys=self.keys,
                order_by=self.order_by,
                revised=superseded and self.touched is not None,
            )
        last = render(
            "spark", "last_change_per_key", rows=rows, keys=self.keys, order_by=self.order_by, revised=superseded
        )
        if not (superseded and self.touched and self.order_by):
            return last
        return self._render("largest_order", rows=last, keys=[c for c in self.columns if c.is_key])

    def rows(self, spark: SparkSession) -> DataFrame:
        """What the table needs of each key."""
        return spark.sql(self.of(self.landed), args=dict(self.parameters))

    @property
    def parameters(self) -> Mapping[str, object]:
        """What the statements are bound to."""
        route = self.route.parameters if self.route else {}
        return {
            "first": self.first,
            "last": self.last,
            **route,
            **unchanged_parameters([c.path[-1] for c in self.unchanged]),
        }
