"""Uploads rows from one Spark task as one load job, if there is no folder that BigQuery reads."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyiceberg.io import load_file_io

from jobs.destinations.bigquery.side_table import BigQuerySideTable
from jobs.destinations.bigquery.staged_files import RowsFile
from jobs.spark.spark_tasks import Batches, report_row
from resources.bigquery import BigQuery


@dataclass(frozen=True)
class UploadTask:
    """The function of the one task that has all rows; like `StagingTask`.

    Attributes:
        labels: the job's, without the counts of refused rows.
        seconds: how long the load of dead letters may take.
        reached: called when they are loaded.
    """

    file: RowsFile
    parts: Callable[[Batches], Iterator[pa.Table]]
    bigquery: BigQuery
    side_table: BigQuerySideTable
    staging_table: str
    job_id: str
    labels: Mapping[str, str]
    seconds: float
    reached: Callable[[], None]
    writes_dead_letters: bool = True

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.parquet"
            written, dead_letters = self.file.write(load_file_io({}, str(path)), str(path), self.parts(batches))
            if self.writes_dead_letters and dead_letters.num_rows:
                self.side_table.add(dead_letters, self.labels, self.seconds)
                self.reached()
            labels = {**self.labels, **written.counts.labels(self.file.refusal.attempt)}
            with path.open("rb") as rows:
                self.bigquery.submit_load(self.job_id, rows, self.staging_table, self.file.stager.present, labels)
        yield report_row(replace(written, files=(), empty=()))
