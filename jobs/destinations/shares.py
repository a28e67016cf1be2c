"""Reads query results share by share in Spark's tasks, so that rows never pass through the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from jobs.destinations.row_values import RowValues
from jobs.spark.spark_tasks import Batches, in_arrow, numbered, numbers
from resources.spark import parallelism

# Called in a task. It is pickled, so it must not contain a client or a session.
Share = Callable[[], Iterable[pa.Table]]

# Fewer rows are read faster than a task starts.
WORTH_A_TASK = 250_000
# Shares per core, so that no core waits long for the last one.
_PIECES = 2


@dataclass(frozen=True)
class ReadShare:
    """A share that a client reads (`batches`), with its values in comparable form."""

    batches: Callable[[], Iterable[pa.RecordBatch]]
    values: RowValues

    def __call__(self) -> Iterator[pa.Table]:
        return (self.values.as_read(pa.Table.from_batches([batch])) for batch in self.batches())


def rows_of(spark: SparkSession, shares: Sequence[Share], schema: pa.Schema) -> DataFrame:
    """The rows of all shares, each read in a task of its own; in no order."""

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            for table in shares[number]():
                yield from table.select(schema.names).cast(schema).to_batches()

    count = len(shares)
    return in_arrow(numbered(spark, count, max(1, count)), read, schema)


def reshaped(rows: DataFrame, shape: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> DataFrame:
    """Spark rows, each record batch converted by `shape`."""

    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from shape(pa.Table.from_batches([batch])).cast(schema).to_batches()

    return in_arrow(rows, work, schema)


def share_count(spark: SparkSession, rows: int) -> int:
    """Into how many shares this number of rows is divided."""
    wanted = 1 + rows // WORTH_A_TASK
    return min(wanted, _PIECES * parallelism(spark)) if wanted > 1 else 1
