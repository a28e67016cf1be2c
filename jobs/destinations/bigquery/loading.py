"""Filling BigQuery's staging table by load jobs, one a flush, in one of three ways (`Loader._load_once`):

1. Where landed rows have the staging table's shape (`as_landed`), and files hold those of the flush and nothing else,
   the job loads the landed files, if they are where BigQuery reads.
2. Elsewhere Spark's tasks copy them into a folder that BigQuery reads (`copied_files`), and the job loads the copies.
3. All other rows, and those of files that BigQuery refuses, Spark's tasks shape, check and write to other files
   (`sent_rows`).

No row passes through this process.

Why load jobs and not the Storage Write API: a load takes effect once or not at all under an id that we choose, so two
runs agree on it without writing anything down. A write stream's name is chosen by BigQuery: who creates one and dies
leaves nothing that the next run could find, and every stream would need a row of state before its first byte. Loads
cost nothing and skip the streaming buffer. Their limits (vendor page "Quotas and limits"): 1,500 a table and day, which
is one flush a minute, so `merge_interval_seconds` below 60 is for short peaks; a batch that meets the limit stays
landed and goes with a later flush. Write streams would allow flushes of a few seconds; nothing else speaks for them:
on the emulator a load of 100,000 rows was also faster by far.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from google.cloud.bigquery import Table

from jobs.changes.landed_file import LandedFile
from jobs.changes.planned_files import PlannedFiles
from jobs.destinations.bigquery.copied_files import MOST_COPIES, copy_files
from jobs.destinations.bigquery.direct_load import can_read
from jobs.destinations.bigquery.flush import Flush, RefusedCounts, adopted
from jobs.destinations.bigquery.job_sequence import JobSequence
from jobs.destinations.bigquery.names import new_job_id
from jobs.destinations.bigquery.sent_rows import SentRows
from jobs.destinations.bigquery.staged_files import Staged
from jobs.destinations.bigquery.staging_folder import StagingFolder
from resources.bigquery import Job
from resources.errors import CommitFailed, InvariantBroken, TerminalError
from sql import render

_LOG = logging.getLogger("batchmerge")
_TOKEN = "batchmerge-token"
_MADE_WITH = "batchmerge-made-with"


class LoadedOtherwise(CommitFailed):
    """The load of these batches that is done has other rows than this pipeline file makes of them."""


@dataclass(frozen=True, kw_only=True)
class Loader(SentRows):
    """Loads landed rows into one staging table.

    Attributes:
        target: the table that the rows are for, as it is when the work begins; None: it is gone.
        made_with: what its rows are made with (`made_with`).
        as_landed: a landed row is a row of the staging table.
    """

    target: Table | None
    made_with: str
    as_landed: bool = False

    def fill(self, wanted: Flush, attempts: JobSequence) -> tuple[Flush, Job]:
        """Loads a flush, or finds the flush that another run has loaded instead; returns it with the job.

        Removes the dead letters that other attempts have written for its batches.

        Raises:
            InvariantBroken: the staging table does not hold what was loaded.
            LineageBroken, LoadedOtherwise: another run's load is done, of which this one can make no use.
        """
        token = {_TOKEN: uuid.uuid4().hex}
        # Before the load: should this run sleep, the dead letters of later runs stay.
        known = self.side_table.attempts(wanted.first.number, wanted.last.number)
        labels = {**wanted.labels("load", self.context.run_id), _MADE_WITH: self.made_with, **token}
        job = self._load_once(wanted, attempts, labels)
        ours = token.items() <= dict(job.labels).items()
        # An earlier version did not say what it made them with.
        if job.labels.get(_MADE_WITH) != self.made_with:
            why = "the pipeline file makes other rows now than those that are loaded"
            raise LoadedOtherwise(why, where=self.where)
        flush = wanted if ours else adopted(job.labels, self.context.intermediate.landed().batches, self.where)
        self._forget_unloaded(flush, job, known, ours)
        # A replay is not counted: its rows follow from the landed batches, whoever has loaded them.
        if self.replayed is None:
            rows = self.count(flush) - RefusedCounts.of(job.labels).refused
            # Rows that another process has loaded must still be there.
            if not ours or _rows_loaded(job) != rows:
                self._check(flush, rows)
        return flush, job

    def _forget_unloaded(self, flush: Flush, job: Job, known: Sequence[str], ours: bool) -> None:
        """Removes dead letters of attempts that died or came too late to load the rows; ours may be one."""
        side, own = self.side_table, self.refusal.attempt
        loaded = RefusedCounts.attempt_of(job.labels)
        side.forget([attempt for attempt in known if attempt != loaded], flush.first.number, flush.last.number)
        if not ours and own in side.attempts():
            # Dead letters of records that are read again belong to earlier batches.
            side.forget([own])

    def copy(self, flush: Flush, writes_dead_letters: bool = True) -> tuple[int, RefusedCounts]:
        """Loads the rows of a flush into a table that is ours alone; returns how many, and what was refused of them.

        Args:
            writes_dead_letters: for refused rows.
        """
        labels = flush.labels("replay-load", self.context.run_id)
        job = self.load(new_job_id(self.context.pipeline, "replay"), flush, labels, writes_dead_letters)
        self.bigquery.finish(job, self.table.time_limit_seconds)
        return _rows_loaded(job), RefusedCounts.of(job.labels)

    def copy_deletes(self, kept_in: str, last: int) -> None:
        """Adds the deletes that were merged up to batch `last`, from the staging table that keeps them."""
        tables = {"replay_table": self.staging_table, "staging_table": kept_in}
        named = {name: self.bigquery.table_id(table) for name, table in tables.items()}
        text = render("bigquery", "kept_deletes", **named)
        job_id = new_job_id(self.context.pipeline, "replay")
        job = self.bigquery.submit_query(job_id, text, {"last": last}, {})
        self.bigquery.finish(job, self.table.time_limit_seconds)

    def _load_once(self, flush: Flush, attempts: JobSequence, labels: Mapping[str, str]) -> Job:
        """Loads a flush unless another run has: its landed files or copies of them, else its rows in other files."""
        if load_files := self._of_landed_files(flush, labels):
            try:
                return attempts.run_until_done(load_files)
            except TerminalError as refused:
                _LOG.warning("%s: the landed files are not loaded as they are, rows are sent: %s", self.where, refused)
        return attempts.run_until_done(lambda job_id: self.load(job_id, flush, labels, writes_dead_letters=True))

    def _of_landed_files(self, flush: Flush, labels: Mapping[str, str]) -> Callable[[str], Job] | None:
        """How the landed files of a flush are loaded, under a given job id; None: its rows have to be sent."""
        reads = self.bigquery.connection.reads
        files = self.landed_files(flush) if self.as_landed and (reads or self.folder) else ()
        paths = [file.path for file in files]
        if can_read(paths, reads):
            return lambda job_id: self.submit(job_id, paths, labels)
        if 0 < len(files) <= MOST_COPIES and (folder := self.folder):
            return lambda job_id: self._load_copies(job_id, files, folder, labels)
        return None

    def landed_files(self, flush: Flush) -> Sequence[LandedFile]:
        """The landed files that hold the rows of a flush and nothing else."""
        return PlannedFiles.of(self.files(flush), flush.batches, []).holding_only(flush.batches)

    def _load_copies(
        self, job_id: str, files: Sequence[LandedFile], folder: StagingFolder, labels: Mapping[str, str]
    ) -> Job:
        copies = tuple(folder.new_path("landed") for _ in files)
        with folder.removing(copies, self.where):
            copy_files(self.context.spark, files, copies, self.landed.io, folder.storage, self.where)
            return self.load_staged(job_id, Staged(files=copies), labels)

    def _check(self, flush: Flush, wanted: int) -> None:
        text = render("bigquery", "loaded_rows", staging_table=self.bigquery.table_id(self.staging_table))
        range_ = {"first": flush.first.number, "last": flush.last.number}
        loaded = self.bigquery.read(text, range_, self.where)[0]["loaded"]
        if loaded != wanted:
            raise InvariantBroken(
                f"the staging table {self.staging_table} holds {loaded} rows of batches "
                f"{flush.first.number} to {flush.last.number}, landed for this table were {wanted}",
                where=self.where,
                remedy="drop that table and run again: it is filled again under another name",
            )


def _rows_loaded(job: Job) -> int:
    return int(getattr(job, "output_rows", 0) or 0)
