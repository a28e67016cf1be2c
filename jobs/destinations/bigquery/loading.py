"""Filling BigQuery's intermediate table by load jobs: of landed files, or of rows that are sent, one job a chunk.

Where landed rows have the intermediate table's shape and lie where BigQuery reads them (`as_landed`), one job loads the
files of a flush as they are. Otherwise rows are read, shaped by Arrow, written as Parquet and sent.

Why load jobs and not the Storage Write API: a load takes effect once or not at all under an id that we choose, so two
runs agree on it without writing anything down. A write stream's name is chosen by BigQuery: who creates one and dies
leaves nothing that the next run could find, and every stream would need a row of state before its first byte. Loads
cost nothing and skip the streaming buffer. Their limits (vendor page "Quotas and limits"): 1,500 a table and day, which
is one flush a minute, so `merge_interval_seconds` below 60 is for short peaks; a batch that meets the limit stays
landed and goes with a later flush. Write streams would allow flushes of a few seconds; nothing else speaks for them:
on the emulator a load of 100,000 rows was also faster by far.

Memory: two parts of a chunk as Arrow; its Parquet file is on disk. Nothing for files that are loaded as they are.
"""

from __future__ import annotations

import logging
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
from google.cloud.bigquery import SchemaField

from jobs.destinations.base import MergeContext
from jobs.destinations.bigquery.columns import Column
from jobs.destinations.bigquery.direct_load import can_read
from jobs.destinations.bigquery.flush import Chunk, Flush, Judged, adopted
from jobs.destinations.bigquery.job_sequence import JobSequence
from jobs.destinations.bigquery.rows import ChunkRows
from jobs.destinations.bigquery.side_table import SideTable
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.staging import Stager
from jobs.destinations.refusal import LETTERS, Fit, Refusal
from jobs.failpoints import failpoint
from resources.bigquery import BigQuery, Job
from resources.errors import InvariantBroken, TerminalError
from sql import render

_LOG = logging.getLogger("batchmerge")
_TOKEN = "batchmerge-token"


@dataclass(frozen=True)
class Loader:
    """Loads landed rows into one intermediate table.

    Attributes:
        schema: the intermediate table's, as it is now.
        as_landed: a landed row is a row of the intermediate table.
        refusal: how rows are judged before they are sent.
    """

    bigquery: BigQuery
    context: MergeContext
    intermediate: str
    schema: Sequence[SchemaField]
    columns: Sequence[Column]
    rows: ChunkRows
    table: BigQueryTable
    where: str
    refusal: Refusal
    side_table: SideTable
    as_landed: bool = False

    def fill(self, wanted: Flush, prefix: Callable[[int], str]) -> tuple[Flush, Judged]:
        """Loads a flush, or what is missing of the one that somebody else has begun; returns the flush that it is.

        Also what was refused of it, by whoever has loaded it: letters of attempts that have not are taken away.

        Args:
            prefix: of the job ids of a chunk, by its number.

        Raises:
            InvariantBroken: the intermediate table does not hold what was loaded.
        """
        token = {_TOKEN: uuid.uuid4().hex}
        # Before anything is loaded: what later runs write is theirs, should this one sleep.
        known = self.side_table.attempts(wanted.first.number, wanted.last.number)
        begun, first = self._begin(wanted, prefix, token)
        failpoint("bigquery.first-load")
        ours = _is_ours(first, token)
        flush = begun if ours else adopted(first.labels, self.context.intermediate.landed().batches, self.where)
        jobs = [first, *(self._load_once(chunk, flush, prefix, token) for chunk in flush.chunks()[1:])]
        # What we have loaded ourselves we know; what others have loaded has to be there still.
        judged = sum((Judged.of(job.labels) for job in jobs), Judged())
        all_ours = all(_is_ours(job, token) for job in jobs)
        self._forget_unloaded(flush, jobs, known, all_ours)
        if self.rows.again is not None:
            # What these rows are follows from what is landed, whoever has loaded them.
            return flush, judged
        wanted_rows = self.rows.count(flush) - judged.refused
        if not all_ours or sum(map(_rows, jobs)) != wanted_rows:
            self._check(flush, wanted_rows)
        return flush, judged

    def _forget_unloaded(self, flush: Flush, jobs: Sequence[Job], known: Sequence[str], all_ours: bool) -> None:
        """Takes letters away of attempts that died, or came too late, before they loaded the rows; ours may be one."""
        first, last, own = flush.first.number, flush.last.number, self.refusal.attempt
        written = [*known, *([own] if not all_ours and own in self.side_table.attempts(first, last) else [])]
        loaded = {Judged.attempt_of(job.labels) for job in jobs}
        self.side_table.forget(first, last, [attempt for attempt in written if attempt not in loaded])

    def copy(self, flush: Flush, tells: bool = True) -> tuple[int, Judged]:
        """Loads the rows of a flush into a table that is ours alone; returns how many, and what was refused of them.

        Args:
            tells: letters of what is refused are written.
        """
        rows, judged = 0, Judged()
        for chunk in flush.chunks():
            labels = flush.labels("replay-load", self.context.run_id)
            with self.parquet(chunk, flush) as (file, letters, found):
                if tells:
                    self._keep(letters, labels)
                job_id = f"batchmerge-{self.context.pipeline}-replay-{uuid.uuid4().hex}"
                job = self.bigquery.submit_load(job_id, file, self.intermediate, self.schema, labels)
                failure = self.bigquery.wait(job, self.table.time_limit_seconds)
                if failure is not None:
                    raise failure
            rows, judged = rows + _rows(job), judged + found
        return rows, judged

    def copy_deletes(self, kept_in: str, last: int) -> None:
        """Adds the deletes of a named order that were merged before, up to this batch, from where they are kept."""
        tables = {"staging": self.intermediate, "intermediate": kept_in}
        named = {name: self.bigquery.table_id(table) for name, table in tables.items()}
        self.bigquery.change(render("bigquery", "kept_deletes", **named), {"last": last}, self.where)

    def _begin(self, wanted: Flush, prefix: Callable[[int], str], token: Mapping[str, str]) -> tuple[Flush, Job]:
        """The first load and the flush that it begins: the whole of it where BigQuery reads the landed files itself."""
        files = self.rows.files(wanted) if self.as_landed else []
        if can_read(files, self.bigquery.connection.reads):
            try:
                whole = wanted.in_one_load()
                return whole, self._load_once(whole.chunks()[0], whole, prefix, token, files)
            except TerminalError as refused:
                _LOG.warning("%s: the landed files are not loaded as they are, rows are sent: %s", self.where, refused)
        return wanted, self._load_once(wanted.chunks()[0], wanted, prefix, token)

    def _load_once(
        self,
        chunk: Chunk,
        flush: Flush,
        prefix: Callable[[int], str],
        token: Mapping[str, str],
        files: Sequence[str] = (),
    ) -> Job:
        """Loads a chunk, unless somebody has; from these files, or with rows that are sent."""
        attempts = JobSequence(self.bigquery, prefix(chunk.number), self.table.time_limit_seconds)
        labels = {**flush.labels("load", self.context.run_id), **token}

        def submit(job_id: str) -> Job:
            if files:
                return self.bigquery.submit_load_from(job_id, files, self.intermediate, self.schema, labels)
            with self.parquet(chunk, flush) as (file, letters, judged):
                self._keep(letters, labels)
                said = {**labels, **judged.labels(self.refusal.attempt)}
                return self.bigquery.submit_load(job_id, file, self.intermediate, self.schema, said)

        return attempts.run_until_done(submit, lambda _job: True)

    @contextmanager
    def parquet(self, chunk: Chunk, flush: Flush) -> Iterator[tuple[IO[bytes], pa.Table, Judged]]:
        """The rows of a chunk that the table holds, as a Parquet file; and the letters of the others."""
        stager, letters, judged = Stager(self.columns, self.schema, self.table), LETTERS.empty_table(), Judged()
        with tempfile.TemporaryFile() as file:
            with ExitStack() as opened:
                writer: pq.ParquetWriter | None = None
                for rows in self.rows.read(chunk, flush):
                    fit = self.refusal.fit(rows) if self.rows.judged else Fit(rows, LETTERS.empty_table())
                    letters = pa.concat_tables([letters, fit.letters])
                    judged += Judged(fit.letters.num_rows, fit.out_of_range)
                    batches = fit.rows.to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
                    shaped = pa.Table.from_batches([stager.shape(b) for b in batches])
                    if writer is None:
                        writer = opened.enter_context(pq.ParquetWriter(file, shaped.schema, compression="zstd"))
                    writer.write_table(shaped)
            file.seek(0)
            yield file, letters, judged

    def _keep(self, letters: pa.Table, labels: Mapping[str, str]) -> None:
        if self.refusal.keeps_letters:
            self.side_table.add(letters, labels, self.table.time_limit_seconds)

    def _check(self, flush: Flush, wanted: int) -> None:
        text = render("bigquery", "loaded_rows", intermediate=self.bigquery.table_id(self.intermediate))
        range_ = {"first": flush.first.number, "last": flush.last.number}
        loaded = self.bigquery.read(text, range_, self.where)[0]["loaded"]
        if loaded != wanted:
            raise InvariantBroken(
                f"the intermediate table {self.intermediate} holds {loaded} rows of batches {flush.first.number} to "
                f"{flush.last.number}, landed for this table were {wanted}",
                where=self.where,
                remedy="drop that table and run again: it is filled again under another name",
            )


def _is_ours(job: Job, token: Mapping[str, str]) -> bool:
    return token.items() <= dict(job.labels).items()


def _rows(job: Job) -> int:
    return int(getattr(job, "output_rows", 0) or 0)
