"""Landed files that BigQuery could load as they are, but does not reach: Spark's tasks copy them to where it does.

Byte for byte: that costs less than decoding rows and writing them again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.io import FileIO
from pyspark.sql import SparkSession

from jobs.changes.landed_file import LandedFile
from jobs.groups import balanced, filled
from jobs.spark.spark_tasks import Batches, numbered, numbers, report_row, task_reports, telling
from resources.iceberg_errors import catalog_errors
from resources.spark import parallelism
from resources.spark_errors import spark_errors

# Each copy is written, loaded and removed by requests of its own: the rows of more files are better written to a few.
MOST_COPIES = 1_000
# With less than this a task is not worth its start.
_BYTES_WORTH_A_TASK = 16 << 20
_FILES_WORTH_A_TASK = 50
# Small files mean waiting for the storage most of the time.
_THREADS = 8
# Bytes of a file in memory at a time.
_PIECE_BYTES = 8 << 20


@dataclass(frozen=True)
class CopyFilesTask:
    """The function of a task: numbers of shares in, one report out. A task that is tried again writes the same files.

    Attributes:
        shares: each with the paths of files and of their copies.
        source, target: the clients of both places. May hold secrets: never log them.
    """

    shares: Sequence[Sequence[tuple[str, str]]]
    source: FileIO = field(repr=False)
    target: FileIO = field(repr=False)
    where: str

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        wanted = [paths for number in numbers(batches) for paths in self.shares[number]]
        with catalog_errors(self.where), ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(self._copy, wanted))
        yield report_row(len(wanted))

    def _copy(self, paths: tuple[str, str]) -> None:
        landed, copy = paths
        with (
            self.source.new_input(landed).open(seekable=False) as found,
            self.target.new_output(copy).create(overwrite=True) as written,
        ):
            shutil.copyfileobj(found, written, _PIECE_BYTES)


def copy_files(
    spark: SparkSession, files: Sequence[LandedFile], copies: Sequence[str], source: FileIO, target: FileIO, where: str
) -> None:
    """Has Spark's tasks copy these files to these paths.

    Raises:
        StorageError, Unavailable: why a task failed.
    """
    shares = shared(files, copies, parallelism(spark))
    with spark_errors(where):
        task_reports(numbered(spark, len(shares)), telling(CopyFilesTask(shares, source, target, where)))


def shared(files: Sequence[LandedFile], copies: Sequence[str], most_tasks: int) -> list[list[tuple[str, str]]]:
    """Shares of about the same size for as many tasks as are worth their start."""
    worth = filled(len(files), sum(file.size for file in files), _FILES_WORTH_A_TASK, _BYTES_WORTH_A_TASK)
    tasks = min(most_tasks, len(files), 1 + int(worth))
    shares = balanced(list(zip(files, copies, strict=True)), lambda pair: pair[0].size, tasks)
    return [[(file.path, copy) for file, copy in share] for share in shares]
