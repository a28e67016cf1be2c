"""Landed rows that BigQuery cannot load as they are: Spark's tasks shape them, and write files that one load job loads.

Files go to a folder that BigQuery reads (`staged_files`). Without such a folder one task uploads them (`upload`).
Either way no row passes through the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
from google.cloud.bigquery import SchemaField
from pyiceberg.table import Table
from pyspark.sql import DataFrame

from jobs.changes.columns import CHANGES
from jobs.changes.files import LandedFiles, LandedSlice
from jobs.changes.planned_files import PlannedFiles
from jobs.changes.reduction import Reduction
from jobs.changes.routing import route_filter
from jobs.destinations.bigquery.field import Field
from jobs.destinations.bigquery.flush import Flush
from jobs.destinations.bigquery.rows import RowShape
from jobs.destinations.bigquery.side_table import BigQuerySideTable
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.staged_files import RowsFile, Staged, StagingTask
from jobs.destinations.bigquery.staging import Stager
from jobs.destinations.bigquery.staging_folder import StagingFolder
from jobs.destinations.bigquery.upload import UploadTask
from jobs.destinations.merge_context import MergeContext
from jobs.destinations.refusal import Refusal
from jobs.failpoints import failpoint, failpoint_of_task
from jobs.spark.spark_tasks import Batches, numbered, numbers, report_row, task_reports, telling
from resources.bigquery import BigQuery, Job
from resources.spark import parallelism
from resources.spark_errors import spark_errors

# With fewer rows than this a task is not worth its start.
_WORTH_A_TASK = 50_000

Parts = Callable[[Batches], Iterator[pa.Table]]


@dataclass(frozen=True)
class SentRows:
    """The rows of flushes, on their way into one staging table.

    Attributes:
        schema: the current schema of the staging table.
        replayed: the changes of a replay, which are loaded instead of a flush's rows (`RowShape.replayed`).
        refusal: checks rows before they are loaded.
    """

    bigquery: BigQuery
    context: MergeContext
    staging_table: str
    schema: Sequence[SchemaField]
    shape: RowShape
    table: BigQueryTable
    where: str
    refusal: Refusal
    side_table: BigQuerySideTable
    replayed: Reduction | None = None

    def count(self, flush: Flush) -> int:
        """How many landed rows of a flush the table takes."""
        if route_filter(self.context.spec, self.table) is None:
            return flush.rows
        shares, read = self._landed_slices(flush, [])

        def counted(batches: Batches) -> Iterator[pa.RecordBatch]:
            yield report_row(sum(map(len, read(batches))))

        with spark_errors(self.where):
            return sum(task_reports(shares, counted))

    def load(self, job_id: str, flush: Flush, labels: Mapping[str, str], writes_dead_letters: bool) -> Job:
        """Submits the load of rows that tasks write; returns the job, or the one that has this id already.

        Raises:
            BatchmergeError: the job failed, or did not end in time.
        """
        writes_dead_letters = writes_dead_letters and self.refusal.keeps_dead_letters
        if self.folder is None:
            return self._upload(job_id, flush, labels, writes_dead_letters)
        staged = self.stage(flush, self.folder, writes_dead_letters)
        with self.folder.removing(staged.written, self.where):
            return self.load_staged(job_id, staged, labels)

    def load_staged(self, job_id: str, staged: Staged, labels: Mapping[str, str]) -> Job:
        """Submits the load of files in the staging folder, and waits for it; returns the job.

        Raises:
            BatchmergeError: the job failed, or did not end in time.
        """
        failpoint("bigquery.staged")
        self.side_table.add_files(staged.dead_letters, labels, self.table.time_limit_seconds)
        job = self.submit(job_id, staged.loaded, {**labels, **staged.counts.labels(self.refusal.attempt)})
        self.bigquery.finish(job, self.table.time_limit_seconds)
        return job

    def submit(self, job_id: str, files: Sequence[str], labels: Mapping[str, str]) -> Job:
        """Submits the load of files that BigQuery reads; returns the job, or the one that has this id already."""
        return self.bigquery.submit_load_from(job_id, files, self.staging_table, self.schema, labels)

    def stage(self, flush: Flush, folder: StagingFolder, writes_dead_letters: bool) -> Staged:
        """Has Spark's tasks write the rows of a flush to files in this folder.

        Raises:
            BadRecords, StorageError, Unavailable: why a task failed.
        """
        rows, parts = self._rows(flush)
        return self._staged(rows, StagingTask(self._rows_file, parts, folder, writes_dead_letters))

    def _upload(self, job_id: str, flush: Flush, labels: Mapping[str, str], writes_dead_letters: bool) -> Job:
        rows, parts = self._rows(flush, most_tasks=1)
        task = UploadTask(
            file=self._rows_file,
            parts=parts,
            bigquery=self.bigquery,
            side_table=self.side_table,
            staging_table=self.staging_table,
            job_id=job_id,
            labels=labels,
            seconds=self.table.time_limit_seconds,
            reached=failpoint_of_task("bigquery.letters"),
            writes_dead_letters=writes_dead_letters,
        )
        self._staged(rows, task)
        job = self.bigquery.find_job(job_id)
        assert job, "a task has submitted it"
        return job

    def _staged(self, rows: DataFrame, task: StagingTask | UploadTask) -> Staged:
        with spark_errors(self.where):
            reports = task_reports(rows, telling(task))
            if not reports:
                # Without rows there may be no task, but a load needs a file.
                of_no_rows = replace(task, parts=lambda _batches: iter(()))
                reports = task_reports(numbered(self.context.spark, 1), telling(of_no_rows))
        return sum(reports, Staged())

    def _rows(self, flush: Flush, most_tasks: int | None = None) -> tuple[DataFrame, Parts]:
        """The input of tasks, and how they make rows of it: shares of landed files, or the rows of a replay."""
        spark, shape = self.context.spark, self.shape
        if self.replayed is not None:
            with spark_errors(self.where):
                found = shape.replayed(spark, self.replayed, flush.last.number)
            return found.coalesce(1) if most_tasks == 1 else found, _as_tables
        shares, read = self._landed_slices(flush, shape.paths, most_tasks)
        return shares, lambda batches: map(shape.of, read(batches))

    def _landed_slices(
        self, flush: Flush, paths: Sequence[tuple[str, ...]], most_tasks: int | None = None
    ) -> tuple[DataFrame, Callable[[Batches], Iterator[LandedSlice]]]:
        """The input of tasks, shares of landed files, and how they read these parts of landed rows."""
        spark, files = self.context.spark, PlannedFiles.of(self.files(flush), flush.batches, paths)
        tasks = most_tasks or max(1, min(parallelism(spark), files.most_shares, 1 + flush.rows // _WORTH_A_TASK))
        first, last = flush.first.number, flush.last.number

        def read(batches: Batches) -> Iterator[LandedSlice]:
            for number in numbers(batches):
                yield from files.share(number, tasks).in_pieces(first, last)

        return numbered(spark, tasks), read

    @property
    def _rows_file(self) -> RowsFile:
        fields = tuple(map(Field.of, self.schema))
        return RowsFile(Stager(self.shape.columns, fields, self.table.sanitize_names), self.refusal)

    def files(self, flush: Flush) -> LandedFiles:
        files = LandedFiles.up_to(flush.last, self.context.intermediate)
        return files.taking(CHANGES, route_filter(self.context.spec, self.table))

    @cached_property
    def folder(self) -> StagingFolder | None:
        """Where tasks put files for BigQuery; None: it reads no such place."""
        connection, catalog = self.bigquery.connection, self.context.intermediate.catalog
        return StagingFolder.of(connection, self.context.pipeline, self.landed, catalog)

    @cached_property
    def landed(self) -> Table:
        """The intermediate table."""
        return self.context.intermediate.catalog.require(self.context.intermediate.identifier)


def _as_tables(batches: Batches) -> Iterator[pa.Table]:
    return (pa.Table.from_batches([batch]) for batch in batches)
