"""Spark jobs that read Kafka: the records of one batch, or of batches of many pipelines at once.

The topics of a pipeline with `for_each` are landed side by side. A Spark job for each would often cost more than its
records: so the landings wait for each other when they read (`jobs.members.shared_jobs`), and one job reads for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.batch import Batch
from jobs.landing.read_task import ReadTask, packed
from jobs.landing.splits import plan_shares
from jobs.landing.task_report import TaskReport
from jobs.offsets import Ranges
from jobs.planning.plan import refuse_other_topics
from jobs.spark.spark_tasks import Batches, in_arrow, numbered, report_row, task_reports
from resources.kafka import KafkaCluster
from resources.kafka_records import WantedHeaders, combined, records_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from jobs.landing.task import LandingTask, OpenTask


@dataclass(frozen=True)
class WantedRead:
    """A batch to read, and the task that gets its records, with about how many bytes these take in landed files."""

    kafka: KafkaCluster
    batch: Batch
    headers: WantedHeaders
    task: LandingTask
    size: float


Reads = Callable[["SparkSession", WantedRead], list[TaskReport]]
"""Reads the records; returns the report of each task. Raises TopicRecreated if they may be of another topic."""


def read_alone(spark: SparkSession, wanted: WantedRead) -> list[TaskReport]:
    """Reads one batch in a job of its own."""
    reports = _task_reports(spark, [wanted], wanted.batch.ranges, wanted.headers, wanted.task)
    require_topics(wanted.kafka, [wanted.batch])
    return reports


def require_topics(kafka: KafkaCluster, batches: Sequence[Batch]) -> None:
    """Requires, after the records of these batches were read, that their topics are still the planned ones.

    Raises:
        TopicRecreated: the records of a batch may be of another topic than it was planned for.
    """
    topics = {tp.topic for batch in batches for tp, offsets in batch.ranges.items() if len(offsets)}
    ids = kafka.describe(sorted(topics))[0] if topics else {}
    for batch in batches:
        refuse_other_topics(batch, ids)


def read_in_one_job(spark: SparkSession, wanted: Sequence[WantedRead]) -> list[list[TaskReport]]:
    """Reads several batches in one job. They are of the same Kafka cluster and have no topic in common."""
    ranges = {tp: offsets for one in wanted for tp, offsets in one.batch.ranges.items()}
    numbers = {tp.topic: number for number, one in enumerate(wanted) for tp in one.batch.ranges}
    task = TasksByTopic(numbers, [one.task for one in wanted])
    found: list[list[TaskReport]] = [[] for _ in wanted]
    for number, report in _task_reports(spark, wanted, ranges, combined(one.headers for one in wanted), task):
        found[number].append(report)
    require_topics(wanted[0].kafka, [one.batch for one in wanted])
    return found


def _task_reports(
    spark: SparkSession,
    wanted: Sequence[WantedRead],
    ranges: Ranges,
    headers: WantedHeaders,
    task: Callable[[Batches], Batches],
) -> list[Any]:
    """The reports of all tasks that read the ranges."""
    from resources.spark import parallelism

    shares = plan_shares(ranges, lambda: parallelism(spark), sum(one.size for one in wanted))
    if not shares:
        return []
    return task_reports(
        numbered(spark, len(shares)), ReadTask(wanted[0].kafka, list(map(packed, shares)), headers, task)
    )


@dataclass(frozen=True)
class TasksByTopic:
    """The function of a Spark task for several batches: each record goes to the task of its topic's batch."""

    numbers: Mapping[str, int]
    tasks: Sequence[LandingTask]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        opened: dict[int, OpenTask] = {}
        with ExitStack() as stack:
            for batch in batches:
                for topic, records in _by_topic(batch):
                    number = self.numbers[topic]
                    if number not in opened:
                        opened[number] = stack.enter_context(self.tasks[number].opened())
                    opened[number].add(records)
        for number, task in opened.items():
            yield report_row((number, task.report))


def _by_topic(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    topics = batch.column("topic").cast(pa.string())
    names = pc.unique(topics).to_pylist()
    for name in names:
        yield name, batch if len(names) == 1 else batch.filter(pc.equal(topics, name))


def kafka_records(
    spark: SparkSession, kafka: KafkaCluster, ranges: Ranges, headers: WantedHeaders, size: float = 0
) -> DataFrame:
    """Exactly the records of the ranges; fails if Kafka no longer has one of them. `size`: as in `WantedRead`."""
    from resources.spark import parallelism

    shares = plan_shares(ranges, lambda: parallelism(spark), size)
    read = ReadTask(kafka, list(map(packed, shares)), headers)
    return in_arrow(numbered(spark, len(shares)), read, records_schema(headers))
