"""Reduced changes that Spark has cached, and how they are applied to an Iceberg table.

If the table takes position deletes, Spark's tasks write the new rows and the positions of the old ones; otherwise a
MERGE changes an attempt's branch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from jobs.batch import MergeCounts
from jobs.changes.reduction import Reduction
from jobs.destinations.iceberg.kept_deletes import KeptDeletes
from jobs.iceberg import spark_writes
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.key_search import SHARE, KeySearch, SearchTask
from jobs.iceberg.row_delta import RowDelta
from jobs.iceberg.row_delta_task import RowDeltaReport, RowDeltaTask
from jobs.schema.types import type_name
from jobs.spark.spark_tasks import in_arrow, task_numbers, task_reports, to_each
from resources.errors import InvariantBroken
from resources.spark import parallelism
from sql import quote, render

_COORDINATES = ("_topic", "__partition", "_offset")
# Up to this many changes tasks scan the table's files for the keys; above it Spark joins.
_SCANNED_KEYS = 200_000
# Each scanning task gets all keys: at most _SENT_KEYS / changes tasks.
_SENT_KEYS = 4_000_000
# Up to this many changes Spark broadcasts them for the join.
_BROADCAST_CHANGES = 1_000_000
# New rows are spread over at most this many tasks, or so many per core if that is more.
LEAST_WRITERS, _WRITERS_PER_CORE = 64, 2


@dataclass(frozen=True)
class CachedChanges:
    """The changes for one table, reduced once for all that is asked of them.

    Attributes:
        session: gives Spark's session, unless the work is to end.
        reduced: what they are reduced to, with the columns that some of them leave unchanged.
        view: Spark's view of them.
        found: name for a view of rows that they replace.
        kept_deletes: the table that remembers the order of deletes; None without `order_by`.
        null_safe: null equals null in a key.
        names_rows: each delete names the row that it removes, by coordinates.
        truncated_below: delete rows of a smaller order; None: there are none.
    """

    session: Callable[[], SparkSession]
    reduced: Reduction
    view: str
    found: str
    kept_deletes: KeptDeletes | None
    null_safe: bool
    names_rows: bool
    truncated_below: int | None

    @property
    def spark(self) -> SparkSession:
        return self.session()

    def effect_on(self, attempt: Attempt) -> MergeCounts:
        """Counts what `merge_into` is going to do."""
        effect = self.spark.sql(
            self._render("merge_effect", attempt.path, bounded=self._bounded), args=self._bound_values
        ).first()
        assert effect is not None, "an aggregate has one row"
        return MergeCounts(self._bounds["changes"], effect["inserted"], effect["updated"], effect["deleted"])

    def merge_into(self, attempt: Attempt, summary: dict[str, str]) -> None:
        """One MERGE on the attempt's branch; its snapshot carries the summary."""
        self._keep_deletes()
        # In this session a merge that was given up may still be at work: so the summary is checked before publishing.
        with spark_writes.with_summary(self.spark, summary):
            self.spark.sql(self._render("merge", attempt.path, bounded=self._bounded), args=self._bound_values)

    def write_to(self, delta: RowDelta) -> RowDeltaReport:
        """Has Spark's tasks write the changes, and the positions of the rows that they replace."""
        rows, changes = self._with_positions(delta)
        self._keep_deletes()
        # All rows of a data file to one task, which writes its one file of deletes; new rows to any.
        keys = (F.col(quote("spark", key)) for key in self.reduced.keys)
        some = F.pmod(F.xxhash64(*keys), F.lit(writers(parallelism(self.spark))))
        place = F.coalesce("__bm_file", some.cast("string"))
        report = sum(task_reports(rows.repartition(place), writing_task(delta)), RowDeltaReport())
        if report.counts.changes != changes:
            raise InvariantBroken(
                f"{report.counts.changes} changes were written of {changes}; nothing was published",
                where=delta.identifier,
                remedy="run again; if it happens again, report it with the Spark server's log",
            )
        return report

    def _with_positions(self, delta: RowDelta) -> tuple[DataFrame, int]:
        """The changes with the positions of the rows that they replace, and how many changes there are."""
        columns, count = delta.known_at_base(c.name for c in self.reduced.columns), self._bounds["changes"]
        if delta.path is None:
            return self._joined(None, columns), count
        search = self._search(delta, columns) if count <= _SCANNED_KEYS else None
        if search is not None:
            return self._joined(self._scanned(search), columns), count
        broadcast = count <= _BROADCAST_CHANGES
        return self._joined(delta.path, columns, broadcast=broadcast, bounded=self._bounded), count

    def _search(self, delta: RowDelta, columns: frozenset[str]) -> KeySearch | None:
        """How tasks search the files for the keys; None if only Spark can."""
        if not columns.issuperset(self.reduced.keys):
            return None
        order = [self.reduced.order_by] if self.reduced.order_by else []
        others = [*order, *self._unchanged, *(_COORDINATES if self.names_rows else ())]
        search = delta.search_by(self.reduced.keys, [name for name in others if name in columns])
        if search is None:
            return None
        ends = {self.reduced.keys[n]: (self._bounds[f"min_{n}"], self._bounds[f"max_{n}"]) for n in self._bounded}
        return search.between(ends)

    def _joined(
        self, target: tuple[str, ...] | None, columns: frozenset[str], broadcast: bool = False, **more: object
    ) -> DataFrame:
        text = self._render("row_delta", target, target_columns=columns, broadcast=broadcast, **more)
        return self.spark.sql(text, args=self._bound_values if more.get("bounded") else {})

    def _scanned(self, search: KeySearch) -> tuple[str, ...] | None:
        """The rows that the search finds as a view; None if no file can hold any."""
        most = min(parallelism(self.spark), max(1, _SENT_KEYS // max(1, self._bounds["changes"])))
        shares = search.in_shares(most)
        if not shares:
            return None
        names = [F.col(quote("spark", key)) for key in self.reduced.keys]
        keys = to_each(self.spark.table(self.view).select(names), len(shares), SHARE)
        task = SearchTask(dict(zip(task_numbers(len(shares)), shares, strict=True)))
        in_arrow(keys, task, search.landed).createOrReplaceTempView(self.found)
        return (self.found,)

    def _keep_deletes(self) -> None:
        """Publishes them before the table's own commit, so that none is lost; to keep one again does no harm."""
        if self.kept_deletes and self._bounds["ordered_deletes"]:
            attempt = self.kept_deletes.begin()
            with spark_writes.with_summary(self.spark, attempt.summary):
                self.spark.sql(self._render("keep_deletes", None, kept_deletes=attempt.path))
            attempt.publish_head({}, {})

    @property
    def _unchanged(self) -> list[str]:
        return [c.name for c in self.reduced.unchanged]

    @cached_property
    def _bounds(self) -> Row:
        ordered = {n: self.reduced.keys[n] for n in self._ordered}
        text = render(
            "spark", "key_bounds", ordered=ordered, changes=[self.view], keeps_deletes=bool(self.kept_deletes)
        )
        found = self.spark.sql(text).first()
        assert found is not None, "an aggregate has one row"
        return found

    @property
    def _ordered(self) -> dict[int, str]:
        """Number and type of the key columns whose smallest and largest value could prune.

        Not those of a type of the table's own: its order in statistics is not that of the landed text.
        """
        types = {c.name: c.type for c in self.reduced.columns if c.own is None and _has_order(c.type)}
        return {n: type_name(types[key]) for n, key in enumerate(self.reduced.keys) if key in types}

    @property
    def _bounded(self) -> dict[int, str]:
        """Those of which no value is null."""
        changes = self._bounds["changes"]
        return {n: kind for n, kind in self._ordered.items() if self._bounds[f"present_{n}"] == changes > 0}

    @property
    def _bound_values(self) -> dict[str, object]:
        return {f"{end}_{n}": self._bounds[f"{end}_{n}"] for n in self._bounded for end in ("min", "max")}

    def _render(self, template: str, target: tuple[str, ...] | None, **more: object) -> str:
        return render(
            "spark",
            template,
            target=target,
            changes=[self.view],
            keys=self.reduced.keys,
            columns=[c.name for c in self.reduced.columns],
            mode=self.reduced.mode,
            named=self.names_rows,
            null_safe=self.null_safe,
            order_by=self.reduced.order_by,
            unchanged=self._unchanged,
            truncated_below=self.truncated_below,
            **{"bounded": {}, **more},
        )


def writers(cores: int) -> int:
    """Over how many tasks new rows are spread, on a cluster of so many cores."""
    return max(LEAST_WRITERS, _WRITERS_PER_CORE * cores)


def writing_task(delta: RowDelta) -> RowDeltaTask:
    """Writes changes as files of this commit."""
    return RowDeltaTask(delta.files, delta.base_files)


def _has_order(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
    )
