"""The changes of a range of landed batches, reduced by Spark SQL, and applied to a table.

To a table that takes position deletes Spark's tasks write the new rows and the places of the old ones, as files that
the run commits; others are changed by MERGE on an attempt's branch.

The mode's filter comes before the reduction to one change per key, so that the result does not depend on where the
log was cut into batches (`docs/internals.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from jobs.batch import MergeCounts
from jobs.changes.few_changes_task import FewChangesTask
from jobs.changes.key_shares_task import write_in_shares
from jobs.changes.last_changes import LastChanges
from jobs.changes.reduction import Reduction
from jobs.iceberg import spark_writes
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.key_search import SHARE, KeySearch, SearchTask
from jobs.iceberg.row_delta import RowDelta
from jobs.iceberg.row_delta_task import Effect, RowDeltaReport, RowDeltaTask
from jobs.iceberg.rows import with_all_columns
from jobs.lineage import bound_topics
from jobs.own_views import own_views
from jobs.schema.types import type_name
from jobs.spark_tasks import OneTask, in_tasks, numbered, task_numbers, task_reports, to_each
from resources.errors import InvariantBroken
from resources.spark import parallelism
from sql import quote, render

_COORDINATES = ("_topic", "__partition", "_offset")
# The files are looked through for the keys of so few changes; those of more are joined with the table by Spark.
_SCANNED_KEYS = 200_000
# They are sent to as many tasks as this makes of them together.
_SENT_KEYS = 4_000_000
# So many changes are sent to every worker, to find their keys there; of more the table's keys are sorted.
_BROADCAST_CHANGES = 1_000_000
# New rows are spread over so many tasks at most.
_WRITERS = 64


@dataclass(frozen=True)
class Changes:
    """The landed changes of a reduction, for one destination table.

    Attributes:
        wanted: which changes, and what they are reduced to; what they leave as it was is found here.
        kept_deletes: table that remembers the order of deletes; None where no order is named.
        null_safe: null equals null in a key.
        one_task: does what takes one task of Spark.
        leaves_unchanged: changes may leave columns as they were.
        missing: only rows that the table lacks; for replay of tables without a unique key.
        truncated_below: the table has rows of a smaller order, which go; None: it has none.
        few: gives the same changes where they are so few and plain that tasks can read and apply them themselves.
        recreated: topics that were recreated since the table has rows (`jobs.lineage.recreated_topics`).
        view, found: of changes that are `at_hand` the view that has them, and the one for rows that they replace.
    """

    session: Callable[[], SparkSession]
    wanted: Reduction
    kept_deletes: tuple[str, ...] | None
    null_safe: bool
    one_task: OneTask
    leaves_unchanged: bool = False
    missing: bool = False
    truncated_below: int | None = None
    few: Callable[[], LastChanges | None] | None = None
    recreated: Mapping[str, Sequence[int]] = field(default_factory=dict)
    view: str = ""
    found: str = ""

    @property
    def spark(self) -> SparkSession:
        return self.session()

    def missing_in(self, recreated: Mapping[str, Sequence[int]]) -> Changes:
        """Only rows that the table lacks."""
        return replace(self, missing=True, recreated=recreated)

    def append_to(self, attempt: Attempt) -> int:
        """Appends every change that is not a delete, as it was landed; returns how many rows there were."""
        self.one_task.is_not_enough()
        rows = with_all_columns(
            self._sql(self._text(attempt.path)), [c.name for c in self.wanted.columns], attempt.schema
        )
        spark_writes.append(rows, attempt.path, attempt.summary)
        return attempt.added_rows()

    @contextmanager
    def at_hand(self, target: tuple[str, ...] | None) -> Iterator[Changes]:
        """The same changes, reduced once for all that is asked of them; a run that sleeps finds its own again."""
        self.one_task.is_not_enough()
        with own_views(self.spark, "changes", "found") as (view, found):
            kept = replace(self, view=view, found=found)
            kept._sql(kept._text(target)).createOrReplaceTempView(view)
            self.spark.catalog.cacheTable(view)
            yield kept

    def effect_on(self, attempt: Attempt) -> MergeCounts:
        """Counts what the merge is going to do; of changes that are at hand, as `merge_into`."""
        effect = self.spark.sql(
            self._render("merge_effect", attempt.path, bounded=self._bounded), args=self._bound_values
        ).first()
        assert effect is not None, "an aggregate has one row"
        return MergeCounts(self._bounds["changes"], effect["inserted"], effect["updated"], effect["deleted"])

    def merge_into(self, attempt: Attempt, summary: dict[str, str]) -> None:
        """One MERGE on the attempt's branch; its snapshot carries the summary."""
        self._keep_deletes()
        # The session is this table's own, and the attempt's id in the summary is checked before publishing.
        with spark_writes.with_summary(self.spark, summary):
            self.spark.sql(self._render("merge", attempt.path, bounded=self._bounded), args=self._bound_values)

    def write_to(self, delta: RowDelta) -> Effect:
        """Has Spark's tasks write the reduced changes, and where the rows are that they replace, for one commit."""
        report = self._written_by_few(delta)
        if report is None:
            with self.at_hand(delta.path) as kept:
                report = kept._written_by_all(delta)
        delta.add(report.files)
        delta.remove(report.deletes)
        self._fold(delta)
        return report.effect

    def _written_by_few(self, delta: RowDelta) -> RowDeltaReport | None:
        changes = self.few() if self.few else None
        search = delta.search_by(self.wanted.keys) if changes else None
        if changes is None or search is None:
            return None
        task = FewChangesTask(changes, self.wanted.keys, self.null_safe, search, self._writing(delta))
        if changes.shares == 1:
            reports = self.one_task(self.session, task)
            return RowDeltaReport.sum_of(reports) if reports else None
        if task.has_too_many_rows:
            return None
        self.one_task.is_not_enough()
        return write_in_shares(self.spark, task)

    def _written_by_all(self, delta: RowDelta) -> RowDeltaReport:
        rows, changes = self._with_places(delta)
        self._keep_deletes()
        # All rows of a data file to one task, which writes its one file of deletes; new rows to any.
        keys = (F.col(quote("spark", key)) for key in self.wanted.keys)
        place = F.coalesce("__file", F.pmod(F.xxhash64(*keys), F.lit(_WRITERS)).cast("string"))
        report = RowDeltaReport.sum_of(task_reports(rows.repartition(place), self._writing(delta)))
        if report.effect.changes != changes:
            raise InvariantBroken(
                f"{report.effect.changes} changes were written of {changes}; nothing was published",
                where=delta.identifier,
                remedy="run again; if it happens again, report it with the Spark server's log",
            )
        return report

    def _writing(self, delta: RowDelta) -> RowDeltaTask:
        return RowDeltaTask(delta.identifier, delta.files, delta.base_files)

    def _fold(self, delta: RowDelta) -> None:
        if task := delta.fold_task():
            groups = numbered(self.spark, len(task.groups))
            delta.add(RowDeltaReport.sum_of(task_reports(groups, task)).files)

    def _with_places(self, delta: RowDelta) -> tuple[DataFrame, int]:
        """The changes with the places of the rows that they replace, and how many changes there are."""
        columns = delta.known_at_base(c.name for c in self.wanted.columns)
        if delta.path is None:
            return self._joined(None, columns), self._bounds["changes"]
        search = self._search(delta, columns) if self._bounds["changes"] <= _SCANNED_KEYS else None
        if search is not None:
            return self._joined(self._scanned(search), columns), self._bounds["changes"]
        few = self._bounds["changes"] <= _BROADCAST_CHANGES
        return self._joined(delta.path, columns, broadcast=few, bounded=self._bounded), self._bounds["changes"]

    def _search(self, delta: RowDelta, columns: frozenset[str]) -> KeySearch | None:
        """How tasks look through the files; None where Spark has to."""
        if not columns.issuperset(self.wanted.keys):
            return None
        order = [self.wanted.order_by] if self.wanted.order_by else []
        others = [*order, *self._unchanged, *(_COORDINATES if self._names_rows else ())]
        search = delta.search_by(self.wanted.keys, [name for name in others if name in columns])
        if search is None:
            return None
        ends = {self.wanted.keys[n]: (self._bounds[f"min_{n}"], self._bounds[f"max_{n}"]) for n in self._bounded}
        return search.between(ends)

    def _joined(
        self, target: tuple[str, ...] | None, columns: frozenset[str], broadcast: bool = False, **more: object
    ) -> DataFrame:
        text = self._render("row_delta", target, target_columns=columns, broadcast=broadcast, **more)
        return self.spark.sql(text, args=self._bound_values if more.get("bounded") else {})

    def _scanned(self, search: KeySearch) -> tuple[str, ...] | None:
        """The rows that the search finds as a view; None where no file can hold any."""
        most = min(parallelism(self.spark), max(1, _SENT_KEYS // max(1, self._bounds["changes"])))
        shares = search.in_shares(most)
        if not shares:
            return None
        names = [F.col(quote("spark", key)) for key in self.wanted.keys]
        keys = to_each(self.spark.table(self.view).select(names), len(shares), SHARE)
        task = SearchTask(dict(zip(task_numbers(len(shares)), shares, strict=True)))
        kind = from_arrow_schema(search.found, prefer_timestamp_ntz=True)
        keys.mapInArrow(in_tasks(task), kind).createOrReplaceTempView(self.found)
        return (self.found,)

    def _keep_deletes(self) -> None:
        if self.kept_deletes:
            self.spark.sql(self._render("keep_deletes", None))

    def _text(self, target: tuple[str, ...] | None) -> str:
        """The SQL of the rows to apply, built up from filter, reduction, order and (replay) what is missing."""
        text = self._reduction.of(self._reduction.landed)
        if self.kept_deletes:
            text = render(
                "spark",
                "without_deleted_later",
                rows=text,
                kept_deletes=self.kept_deletes,
                keys=self.wanted.keys,
                null_safe=self.null_safe,
            )
        if self.missing:
            text = render(
                "spark",
                "missing_rows",
                rows=text,
                target=target,
                mode=self.wanted.mode,
                recreated=list(self.recreated.values()),
                columns=[c.name for c in self.wanted.columns],
                keys=self.wanted.keys,
                null_safe=self.null_safe,
                order_by=self.wanted.order_by,
            )
        return text

    def _sql(self, text: str) -> DataFrame:
        return self.spark.sql(text, args={**self._reduction.parameters, **bound_topics(self.recreated)})

    @cached_property
    def _reduction(self) -> Reduction:
        if not self.leaves_unchanged:
            return self.wanted
        return self.wanted.with_unchanged(self.spark)

    @property
    def _unchanged(self) -> list[str]:
        return [c.name for c in self._reduction.unchanged]

    @property
    def _names_rows(self) -> bool:
        """Deletes say which rows of the table they take away."""
        return self.missing and self.wanted.mode == "delete"

    @cached_property
    def _bounds(self) -> Row:
        found = self.spark.sql(render("spark", "key_bounds", keys=self.wanted.keys, changes=[self.view])).first()
        assert found is not None, "an aggregate has one row"
        return found

    @property
    def _bounded(self) -> dict[int, str]:
        """Number and type of the key columns whose smallest and largest value can prune: ordered, and never null."""
        types = {c.name: c.type for c in self.wanted.columns}
        return {
            n: type_name(types[key])
            for n, key in enumerate(self.wanted.keys)
            if _has_order(types[key]) and self._bounds[f"present_{n}"] == self._bounds["changes"] > 0
        }

    @property
    def _bound_values(self) -> dict[str, object]:
        return {f"{end}_{n}": self._bounds[f"{end}_{n}"] for n in self._bounded for end in ("min", "max")}

    def _render(self, template: str, target: tuple[str, ...] | None, **more: object) -> str:
        return render(
            "spark",
            template,
            target=target,
            changes=[self.view],
            kept_deletes=self.kept_deletes,
            keys=self.wanted.keys,
            columns=[c.name for c in self.wanted.columns],
            mode=self.wanted.mode,
            named=self._names_rows,
            null_safe=self.null_safe,
            order_by=self.wanted.order_by,
            unchanged=self._unchanged,
            truncated_below=self.truncated_below,
            **{"bounded": {}, **more},
        )


def _has_order(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
    )
