"""Does a destination table say what the landed changes say? All of it, or some rows picked at random."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from jobs.batch import CommittedState
from jobs.destinations.base import Destination
from jobs.landing.columns import RowColumn
from jobs.landing.kept import columns_kept, kept_parameters, may_keep
from jobs.landing.routing import taken_by
from jobs.pipeline import Pipeline
from jobs.spec.tables import Table
from orchestration.checks.contents import Contents
from resources.errors import CommitFailed
from resources.spark import spark_errors
from sql import render

_EXPECTED, _FOUND = "batchmerge_expected", "batchmerge_found"
_SLICE = 100_000
_TRIES = 3
_COORDINATES = ("topic", "partition", "offset")


@dataclass(frozen=True)
class Verdict:
    """What was found about one table at one batch.

    Attributes:
        rows: in the table.
        compared: rows that were compared value by value.
        wrong: sentences without values; empty where all is well.
        left_out: columns that cannot be compared (nested, or of a type that the pipeline file names).
    """

    batch: int
    rows: int = 0
    compared: int = 0
    duplicates: int | None = None
    wrong: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def reconcile(pipeline: Pipeline, destination: Destination, limit: int) -> Verdict:
    """Compares the table with the changes landed up to its committed batch.

    Args:
        limit: rows to compare; 0: all, which are then held in this process's memory.

    Raises:
        CommitFailed: the table was merged into during each of three tries.
    """
    for _ in range(_TRIES):
        state = destination.committed()
        if state is None:
            return Verdict(0)
        found = _Comparison(pipeline, destination, state).run(limit)
        after = destination.committed()
        if after is not None and after.commit_id == state.commit_id:
            return found
    raise CommitFailed("the table moved on while it was compared", where=destination.name, remedy="try again later")


class _Comparison:
    def __init__(self, pipeline: Pipeline, destination: Destination, state: CommittedState) -> None:
        catalogs = [pipeline.intermediate.catalog, *([c] if (c := getattr(destination, "catalog", None)) else [])]
        # A session of its own: that of the merges may be at work in another process.
        self._spark = pipeline.spark(f"verify {destination.name}", *catalogs)
        self._pipeline, self._destination, self._state = pipeline, destination, state
        self._contents = Contents(destination, self._spark)
        table = destination.table
        self._columns = [c for c in self._contents.columns if _comparable(c, table)]
        # Columns that some changes leave as they were.
        self._kept: tuple[RowColumn, ...] = ()
        self._keys = _keys(self._contents.columns, table)

    def run(self, limit: int) -> Verdict:
        landed, complete = self._pipeline.intermediate.landed()
        numbers = [b.number for b in landed if b.number <= self._state.batch_number]
        if not numbers:
            return Verdict(self._state.batch_number, left_out=["all: retention has removed the landed batches"])
        rows = self._contents.count()
        duplicates = self._contents.duplicate_keys() if self._destination.table.mode.startswith("upsert") else None
        wrong = list[str]()
        with spark_errors(self._destination.name):
            self._expect(numbers[0], numbers[-1])
            if complete:
                should = self._spark.table(_EXPECTED).count()
                wrong += [f"{rows} rows, landed changes make {should}"] if rows != should else []
            compared = self._compare(limit, wrong, complete) if self._keys else 0
            self._spark.catalog.uncacheTable(_EXPECTED)
        left_out = sorted({c.name for c in self._contents.columns} - {c.name for c in self._columns})
        return Verdict(self._state.batch_number, rows, compared, duplicates, wrong, left_out)

    def _expect(self, first: int, last: int) -> None:
        """The rows that the table should have, as a view that is computed once."""
        spec, table = self._pipeline.spec, self._destination.table
        order = spec.changes.order_by if spec.changes.order_by != "arrival" else None
        landed = self._pipeline.intermediate
        newest = next(b for b in landed.landed()[0] if b.number == last)
        snapshot = landed.snapshot_with(newest)
        route = taken_by(spec, table)
        if may_keep(spec, table, landed):
            self._kept = columns_kept(self._spark, landed.path, snapshot, first, last, self._contents.columns)
        keys = [c.name for c in self._contents.columns if c.is_key]
        text = render(
            "spark",
            "landed_rows",
            columns=self._contents.columns,
            order_by=("value", order) if order else None,
            table=landed.path,
            snapshot=snapshot,
            mode=table.mode,
            touched=None,
            route=route,
            kept=self._kept,
        )
        if self._kept:
            text = render("spark", "carried_forward", rows=text, keys=keys, kept=self._kept)
        if table.mode != "append" and spec.changes.key:
            template = "last_delete_per_key" if table.mode == "delete" else "last_change_per_key"
            text = render("spark", template, rows=text, keys=keys, order_by=order)
        names = [c.name for c in self._contents.columns]
        text = render("spark", "expected_rows", rows=text, columns=names, kept=bool(self._kept))
        parameters = route.parameters if route else {}
        kept = kept_parameters([c.path[-1] for c in self._kept])
        rows = self._spark.sql(text, args={"first": first, "last": last, **parameters, **kept})
        self._spark.catalog.dropTempView(_EXPECTED)
        rows.createOrReplaceTempView(_EXPECTED)
        self._spark.catalog.cacheTable(_EXPECTED)

    def _compare(self, limit: int, wrong: list[str], complete: bool) -> int:
        names = [c.name for c in self._columns]
        found = self._contents.rows(self._columns, limit)
        unknown, differs = 0, dict.fromkeys(names, 0)
        kept = [c.name for c in self._kept]
        text = render(
            "spark", "reconcile", found=[_FOUND], expected=[_EXPECTED], columns=names, keys=self._keys, kept=kept
        )
        for start in range(0, len(found), _SLICE):
            self._spark.createDataFrame(found.slice(start, _SLICE)).createOrReplaceTempView(_FOUND)
            answer = self._spark.sql(text).first()
            assert answer is not None, "an aggregate has one row"
            # Where retention has removed landed batches, a row that nothing landed speaks of may be right.
            unknown += answer["unknown"] if complete else 0
            for n, name in enumerate(names):
                differs[name] += answer[f"differs_{n}"]
        wrong += [f"{unknown} rows that no landed change explains"] if unknown else []
        wrong += [f"column {name} differs in {count} rows" for name, count in differs.items() if count]
        return len(found)


def _keys(columns: list[RowColumn], table: Table) -> list[str]:
    """What identifies a row: its key, or where it came from; nothing where it has neither."""
    if table.mode.startswith("upsert"):
        return [c.name for c in columns if c.is_key]
    if not all(name in table.metadata_columns for name in _COORDINATES):
        return []
    paths = [("kafka", name) for name in _COORDINATES]
    return [c.name for c in columns if c.path in paths]


def _comparable(column: RowColumn, table: Table) -> bool:
    return not pa.types.is_nested(column.type) and column.name not in getattr(table, "column_types", {})
