"""Inserts chunks of landed rows: what a Spark task does with its rows.

Each chunk is one statement, fenced by the lease and with its own deduplication token, so that repeating it (a retried
statement, a retried task, the next run) changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from jobs.added import Added
from jobs.destinations.clickhouse.columns import Column
from jobs.destinations.clickhouse.landed_values import check_landed
from jobs.destinations.clickhouse.spread import NUMBER, Question, Spread
from jobs.destinations.clickhouse.steps import Chunk
from jobs.destinations.refusal import DEAD_LETTER_ROW, SENT_DELETED, Refusal, judged
from jobs.spark.spark_tasks import Task, report_row, task_reports, telling
from resources.clickhouse import ClickHouseServer, to_arrow_file
from resources.clickhouse_errors import retried
from resources.errors import BadRecords, TerminalError
from resources.spark_errors import spark_errors

T = TypeVar("T")

# Makes the rows of one chunk on demand.
Rows = Callable[[], pa.Table]


class Only(StrEnum):
    """Which rows of a chunk are inserted: all; those that this step has not inserted; those whose record the table
    lacks.

    A record is identified by topic id, partition and offset. In tables with versions all rows are inserted.
    """

    ALL = "all"
    STEP = "step"
    RECORD = "record"


@dataclass(frozen=True)
class InsertCounts(Added):
    """Numbers of inserted rows.

    Attributes:
        deletes, out_of_range: included in `rows`; the latter have a value that was clamped or set to null.
        refused: not included in `rows`.
    """

    rows: int = 0
    deletes: int = 0
    refused: int = 0
    out_of_range: int = 0


# Columns that the insert needs besides the row itself and those of `Refusal`.
CHUNK, POSITION, ORDER = "__bm_chunk", "__i", "__order"

# The server's error codes for a value that the column's type cannot hold (395: from our own check).
_DOES_NOT_FIT = frozenset(
    {6, 26, 27, 32, 33, 38, 41, 43, 53, 69, 70, 72, 117, 130, 131, 321, 349, 376, 395, 407, 467, 675, 676, 691}
)

_UNFIT = "the value does not fit the type"
# Of the bisection of one column of a chunk: minutes. They find some 500 values that are spread over 250,000 rows; a
# table with more needs another type.
_MOST_QUERIES = 10_000


@dataclass(frozen=True)
class InsertTask:
    """Everything a task needs to insert its chunks; travels to the workers.

    Attributes:
        sql: the insert of a chunk.
        coordinates: the rows whose coordinates the insert compares with the table's; None: it compares none.
        columns: of the table, without version and deletion mark.
        wire: names of the columns that are sent.
        parameters: of the fence.
        token_prefix: pipeline/table/step.
        query_prefix: of the statements' ids, by which a newer owner finds and stops them.
        dead_letters_sql: the insert into the side table.
        unfit: for columns of a named type the question which values do not fit.
        fits: for all of these columns the query that fails if a value does not fit.
        spread: which rows belong on this endpoint; None: all.
        elsewhere: of each other endpoint whether it has a row's record, given the records that the chunk covers: such
            rows are not inserted here.
    """

    server: ClickHouseServer
    sql: str
    coordinates: Only | None
    columns: tuple[Column, ...]
    wire: tuple[str, ...]
    parameters: Mapping[str, object]
    settings: Mapping[str, object]
    chunks: tuple[Chunk, ...]
    token_prefix: str
    query_prefix: str
    refusal: Refusal
    dead_letters_sql: str
    unfit: Mapping[str, Question] = field(default_factory=dict)
    fits: Mapping[str, Question] = field(default_factory=dict)
    spread: Spread | None = None
    elsewhere: tuple[Question, ...] = ()

    def run(self, pieces: Iterable[tuple[int, Rows]]) -> Iterator[pa.RecordBatch]:
        """Inserts all chunks of one task, by number with their rows; reports what was inserted of each.

        The next chunk's rows are prepared while a chunk is sent.
        """
        with ThreadPoolExecutor(1, "batchmerge-chunk") as thread:
            for number, rows in _one_ahead((number, thread.submit(rows)) for number, rows in pieces):
                yield report_row(self._insert(self.chunks[number], rows.result()))

    def _insert(self, chunk: Chunk, rows: pa.Table) -> InsertCounts:
        fit = self.refusal.fit(rows)
        check_landed(fit.rows, self.columns, self.refusal.columns, self.refusal.where)
        numbers = pa.array(np.arange(fit.rows.num_rows), pa.uint32())
        good, dead_letters = fit.rows.append_column(NUMBER, numbers), fit.dead_letters
        if spread := self.spread:
            good, _, dead_letters = self._again_if_unfit(lambda found, _: spread.own(found), good, dead_letters)
            dead_letters = spread.own_dead_letters(dead_letters)
        _, good, dead_letters = self._again_if_unfit(partial(self._send, chunk), good, dead_letters)
        # After the rows: else a crash in between could leave the dead letter of a row that a corrected table accepts.
        self._keep(chunk, dead_letters)
        deletes = pc.sum(good[SENT_DELETED]).as_py() or 0 if SENT_DELETED in good.column_names else 0
        out_of_range = int(fit.adjusted[good[NUMBER].to_numpy()].sum())
        return InsertCounts(good.num_rows, deletes, dead_letters.num_rows, out_of_range)

    def _again_if_unfit(
        self, work: Callable[[pa.Table, pa.Table], T], rows: pa.Table, dead_letters: pa.Table
    ) -> tuple[T, pa.Table, pa.Table]:
        """The result of `work` on rows and dead letters, and both; once more without rows whose values do not fit."""
        try:
            return work(rows, dead_letters), rows, dead_letters
        except TerminalError as problem:
            rows, more = self._without_unfit(rows, problem)
        dead_letters = pa.concat_tables([dead_letters, more])
        return work(rows, dead_letters), rows, dead_letters

    def _send(self, chunk: Chunk, rows: pa.Table, dead_letters: pa.Table) -> None:
        coordinates = _coordinates(chunk, self.coordinates)
        for is_there in self.elsewhere:
            rows = rows.filter(pa.array(~is_there.holds(rows, coordinates)))
        if rows.num_rows:
            token, parameters = self._token(chunk, dead_letters), {**self.parameters, **coordinates}
            self._execute(self.sql, parameters, token, rows.select(list(self.wire)))

    def _keep(self, chunk: Chunk, dead_letters: pa.Table) -> None:
        """Writes dead letters with a token of the attempt: deduplication must not skip those that an earlier attempt
        wrote too, since the earlier ones will be deleted."""
        if dead_letters.num_rows and self.refusal.keeps_dead_letters:
            token = f"{self._token(chunk, dead_letters)}/{self.refusal.attempt}/dead"
            lease = {name: self.parameters[name] for name in ("lease", "owner")}
            self._execute(self.dead_letters_sql, lease, token, dead_letters)

    def _token(self, chunk: Chunk, dead_letters: pa.Table) -> str:
        """The token of an insert without the rows of these dead letters: with a corrected type they are sent too, which
        must not count as the same insert."""
        token = f"{self.token_prefix}/{chunk.name}"
        if not dead_letters.num_rows:
            return token
        places = dead_letters.select(["topic", "partition", "offset"]).to_pylist()
        return f"{token}/without-{hashlib.sha256(json.dumps(places).encode()).hexdigest()[:16]}"

    def _execute(self, sql: str, parameters: Mapping[str, object], token: str, rows: pa.Table) -> None:
        body = to_arrow_file(rows)

        def once() -> None:
            # A new id each time: the previous try may still be running.
            own = {"insert_deduplication_token": token, "query_id": f"{self.query_prefix}{uuid.uuid4().hex}"}
            self.server.execute(sql, parameters, {**self.settings, **own}, body)

        retried(once)

    def _without_unfit(self, rows: pa.Table, problem: TerminalError) -> tuple[pa.Table, pa.Table]:
        """The rows without those that the declared ClickHouse types cannot hold, and dead letters of the latter; raises
        the problem if it has another cause."""
        if problem.facts.get("code") not in _DOES_NOT_FIT:
            raise problem
        dead_letters = DEAD_LETTER_ROW.empty_table()
        for column, limited in zip(self.columns, self.refusal.columns, strict=True):
            if column.declared:
                asked = np.flatnonzero(judged(rows, limited, np.ones(rows.num_rows, dtype=bool)))
                rows, more = self.refusal.parted(rows, self._unfit(column, rows, asked), limited, _UNFIT)
                dead_letters = pa.concat_tables([dead_letters, more])
        if not dead_letters.num_rows:
            raise problem
        return rows, dead_letters

    def _unfit(self, column: Column, rows: pa.Table, numbers: np.ndarray) -> np.ndarray:
        """Which rows, of those with these numbers, have a value that cannot be converted; one question tells most."""
        unfit = np.zeros(len(numbers), dtype=bool)
        if column.name in self.unfit:
            try:
                unfit = self.unfit[column.name].holds(rows.select([column.name, NUMBER]).take(numbers))
            except TerminalError as problem:
                # Numbers as enums, and times that overflow, fail instead of being null.
                if problem.facts.get("code") not in _DOES_NOT_FIT:
                    raise
        mask = np.zeros(rows.num_rows, dtype=bool)
        mask[numbers[unfit]] = True
        mask[self._bisected(column, rows, numbers[~unfit])] = True
        return mask

    def _bisected(self, column: Column, rows: pa.Table, numbers: np.ndarray) -> list[int]:
        """Numbers of the rows whose value cannot be converted, by queries that fail if one of their values cannot."""
        found, parts, queries = list[int](), [numbers], 0
        while parts:
            part = parts.pop()
            if not len(part):
                continue
            if queries == _MOST_QUERIES:
                raise BadRecords(
                    f"column {column.name}: at least {len(found):,} of {len(numbers):,} values do not fit "
                    f"{column.type}, and {queries:,} queries were not enough to find all",
                    where=self.refusal.where,
                    remedy="correct the column's type in `column_types`",
                )
            queries += 1
            if self._all_fit(column, rows, part):
                continue
            if len(part) > 1:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
                continue
            found.append(int(part[0]))
            if self.refusal.on_bad_record == "fail":  # one is enough
                break
        return found

    def _all_fit(self, column: Column, rows: pa.Table, numbers: np.ndarray) -> bool:
        try:
            self.fits[column.name].ask(rows.select([column.name]).take(numbers))
        except TerminalError as problem:
            if problem.facts.get("code") not in _DOES_NOT_FIT:
                raise
            return False
        return True


def _one_ahead(items: Iterable[T]) -> Iterator[T]:
    """The items, each returned after the next one was fetched."""
    waiting: list[T] = []
    for item in items:
        yield from waiting
        waiting = [item]
    yield from waiting


def _coordinates(chunk: Chunk, only: Only | None) -> dict[str, object]:
    """The records that a chunk covers, as parameters: topics by their index in `topics`, since the names of thousands
    of topic-partitions would not fit into a URL."""
    if only is None:
        return {}
    topics: dict[str, object] = {"topics": list(chunk.topic_ids), "topic_ids": list(chunk.topic_ids.values())}
    if only is Only.ALL:
        return topics
    spans, places = chunk.spans.values(), {topic: n for n, topic in enumerate(chunk.topic_ids, start=1)}
    return {
        **topics,
        "first": min(span.first for span in spans),
        "last": max(span.last for span in spans),
        "partitions": [places[tp.topic] << 32 | tp.partition for tp in chunk.spans],
        "firsts": [span.first for span in spans],
        "lasts": [span.last for span in spans],
    }


def run_tasks(pieces: DataFrame, task: Task, where: str) -> InsertCounts:
    """Runs tasks that report what they have inserted, and adds up the reports.

    Raises:
        Interrupted, Unavailable, TerminalError: the worst error of the tasks.
    """
    with spark_errors(where):
        reports = task_reports(pieces, telling(task))
    return sum(reports, InsertCounts())
