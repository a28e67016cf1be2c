"""Compares a destination table with the landed changes: all rows, or a random sample."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jobs.batch import CommittedState, LandedBatch
from jobs.changes.unchanged_columns import may_leave_unchanged
from jobs.destinations.base import Destination
from jobs.destinations.registry import kind_of
from jobs.lineage import bound_topics, of_one_meaning
from jobs.pipeline import Pipeline
from jobs.spark.own_views import cached, own_views
from jobs.spec.columns import RowColumn
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from jobs.verify.judged_rows import judged
from jobs.verify.landed_spans import from_the_first, landed_spans
from resources.errors import CommitFailed
from resources.spark_errors import spark_errors
from sql import render

_TRIES = 3
# Seconds that a run elsewhere has to finish a batch, after each try.
_PAUSE = 5.0
_MOVED = "a run elsewhere has moved the table on while it was compared", "try again while it does not work"
_UNFINISHED = (
    "there are rows of a batch that is not in all of the table yet",
    "try again once no run is at work; if none is, run the pipeline: it goes on, or says what holds an endpoint up",
)
_COORDINATES = ("topic", "partition", "offset")


@dataclass(frozen=True)
class Verdict:
    """The result for one table at one batch.

    Attributes:
        rows: in the table.
        compared: rows that were compared value by value.
        beside: rows that cannot be checked: of records that were never landed (a replay from Kafka may have added
            them), that are no longer landed, or that have another reading now.
        wrong: problems as sentences without values; empty if there are none.
        left_out: what was not compared, and why.
        may_lack: rows may be missing that nothing records, so that any number of them is right.
        refused: landed rows that the table's system cannot store, so that they are not expected in the table.
    """

    batch: int
    rows: int = 0
    compared: int = 0
    duplicates: int | None = None
    beside: int = 0
    wrong: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    may_lack: bool = False
    refused: int = 0


def reconcile(pipeline: Pipeline, destination: Destination, limit: int) -> Verdict:
    """Compares the table with the changes landed up to its committed batch.

    Args:
        limit: rows to compare; 0: all.

    Raises:
        CommitFailed: a merge changed the table during each of three tries, or is not done everywhere.
    """
    what, remedy = _MOVED
    for _ in range(_TRIES):
        try:
            destination.settle()
        except CommitFailed:  # the run that was merging has done it itself
            continue
        state = destination.committed()
        if state is None:
            return Verdict(0)
        if not _is_everywhere(destination, state):
            what, remedy = _UNFINISHED
            time.sleep(_PAUSE)
            continue
        found = _Comparison(pipeline, destination, state).run(limit)
        after = destination.committed()
        # A run elsewhere may have begun the next batch.
        if after is not None and after.commit_id == state.commit_id and _is_everywhere(destination, state):
            return found
        what, remedy = _MOVED
    raise CommitFailed(what, where=destination.name, remedy=remedy)


def _is_everywhere(destination: Destination, state: CommittedState) -> bool:
    """Whether no part of the table has rows of later batches than its state, which is that of the slowest part: none is
    further than another one, or in the middle of a batch."""
    apart = len(destination.parts()) > 1 and destination.lacks(state.commit_id)
    return not apart and not any(lease.left_behind for lease in destination.leases())


class _Views(NamedTuple):
    """Names of the Spark views of this comparison."""

    expected: str
    found: str
    spans: str
    refused: str


class _Comparison:
    def __init__(self, pipeline: Pipeline, destination: Destination, state: CommittedState) -> None:
        # A session of its own: another process may be using the one of the merges.
        self._spark = pipeline.spark(f"verify {destination.name}", pipeline.intermediate.catalog, destination)
        self._pipeline, self._destination, self._state = pipeline, destination, state
        self._reader = destination.read(lambda: self._spark)
        self._columns = list(self._reader.values.columns)
        # Columns that some changes omit.
        self._unchanged: tuple[RowColumn, ...] = ()
        self._refused = destination.refused_places(lambda: self._spark)
        self._recreated = pipeline.intermediate.recreated()
        self._batch = next((c.name for c in self._columns if c.path == ("batchNumber",)), None)
        self._keys = _keys(self._columns, destination.table)
        # Rows of two topics of one name may have the same offset.
        mixed = bool(self._recreated) and self._batch is None
        if not self._by_key and (mixed or not self._reader.rows_are_records()):
            self._keys = []
        # Whether rows of records with several readings may be as any of them.
        self._stays_as_read = False

    @property
    def _by_key(self) -> bool:
        """Whether rows are identified by their key, and not by their coordinates."""
        return self._destination.table.has_unique_key

    def run(self, limit: int) -> Verdict:
        landed = self._pipeline.intermediate.landed()
        known = [b for b in landed.batches if b.number <= self._state.batch_number]
        merged = of_one_meaning(known)
        complete = landed.complete and len(merged) == len(known)
        if not merged:
            return Verdict(self._state.batch_number, left_out=["all: retention has removed the landed batches"])
        rows, refused = self._reader.count(), sum(self._destination.refused().values())
        duplicates = self._reader.duplicate_keys() if self._by_key else None
        wrong, beside = list[str](), 0
        # Rows of records that were not landed may be right.
        whole = complete and from_the_first(merged, self._recreated)
        may_lack = [*_skipped(self._pipeline.spec, self._destination.table), *self._reader.reasons_to_lack()]
        with spark_errors(self._destination.name), own_views(self._spark, *_Views._fields) as names:
            self._views = _Views(*names)
            self._expect(known, merged[0].number)
            if complete:
                expected = self._spark.table(self._views.expected)
                should, may = expected.where("__bm_expected").count(), expected.where("__bm_may").count()
                missed = (rows < should and not may_lack) or (rows > should + may and whole)
                wrong += [f"{rows} rows, landed changes make {_between(should, should + may)}"] if missed else []
                beside = max(0, rows - should) if may or not whole else 0
            compared = self._compare(limit, wrong, merged, whole) if self._keys else 0
        left_out = [] if self._keys else ["all but the number of rows: no column shows which record a row is from"]
        left_out += [f"rows that are missing: {reason}" for reason in may_lack]
        if self._stays_as_read:
            left_out.append("values: some records were read again, and rows may be as any of the readings")
        return Verdict(
            self._state.batch_number, rows, compared, duplicates, beside, wrong, left_out, bool(may_lack), refused
        )

    def _expect(self, known: Sequence[LandedBatch], first: int) -> None:
        """Creates a cached view of the rows that the table should and should not have from batch `first` on."""
        spec, table = self._destination.spec, self._destination.table
        landed = self._pipeline.intermediate
        reduction = self._destination.reductions(landed).state(known, first)
        # With `order_by` the largest value that was ever read has won.
        newest_wins = self._by_key and not spec.changes.ordered_by
        self._stays_as_read = reduction.revised and not newest_wins
        if may_leave_unchanged(spec, table, landed):
            reduction = reduction.with_unchanged(self._spark)
            self._unchanged = reduction.unchanged
        text, refused = reduction.landed, self._refused
        if refused is not None:
            refused.createOrReplaceTempView(self._views.refused)
            text = render("spark", "without_refused", rows=text, refused=[self._views.refused])
        text = reduction.of(text)
        names = [c.name for c in self._columns]
        text = render("spark", "expected_rows", rows=text, columns=names, unchanged=bool(self._unchanged))
        cached(self._spark.sql(text, args=dict(reduction.parameters)), self._views.expected)

    def _compare(self, limit: int, wrong: list[str], merged: Sequence[LandedBatch], whole: bool) -> int:
        """Compares rows by value; adds problems to `wrong` and returns the number of compared rows."""
        spans, values = self._spans(merged), self._reader.values
        recreated = {} if self._by_key else self._recreated
        text = render(
            "spark",
            "compared_rows",
            found=[self._views.found],
            expected=[self._views.expected],
            spans=spans,
            columns=[c.name for c in values.columns],
            compared_in_python=[c.name for c in values.compared_in_python],
            keys=self._keys,
            unchanged=[c.name for c in self._unchanged],
            batch=self._batch,
            recreated=list(recreated.values()),
        )
        with self._reader.rows(self._spark, limit) as rows:
            rows.createOrReplaceTempView(self._views.found)
            found = judged(self._spark.sql(text, args=bound_topics(recreated)), values)
        if found.unknown and (spans or whole):
            wrong += [f"{found.unknown} rows that no landed change explains"]
        wrong += [f"{found.deleted} rows that landed changes have deleted"] if found.deleted else []
        if not self._stays_as_read:
            wrong += [f"column {name} differs in {count} rows" for name, count in found.differs.items() if count]
        return found.rows

    def _spans(self, merged: Sequence[LandedBatch]) -> list[str] | None:
        """A view of the offsets that were landed; None if the rows have no coordinates."""
        if self._by_key:
            return None
        places = landed_spans(merged, self._recreated).items()
        rows = [(*tp, number, span.start, span.end) for (tp, number), found in places for span in found]
        columns = "topic string, partition int, incarnation int, first long, end long"
        self._spark.createDataFrame(rows, columns).createOrReplaceTempView(self._views.spans)
        return [self._views.spans]


def _skipped(spec: PipelineSpec, table: Table) -> Iterator[str]:
    if kind_of(table).capabilities.refuses and spec.on_bad_record == "skip":
        yield "refused ones are skipped (`on_bad_record: skip`)"


def _between(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


def _keys(columns: list[RowColumn], table: Table) -> list[str]:
    """The columns that identify a row: its key or its coordinates; none if it has neither."""
    if table.has_unique_key:
        return [c.name for c in columns if c.is_key]
    if not all(name in table.metadata_columns for name in _COORDINATES):
        return []
    paths = [("kafka", name) for name in _COORDINATES]
    return [c.name for c in columns if c.path in paths]
