"""The dead-letter topic (`dead_letters.topic`): each dead letter once, as Kafka Connect's sinks would send it.

After a batch is landed, one Spark task sends its dead letters in one Kafka transaction. The same transaction commits
offsets of the consumer group ``batchmerge-<pipeline>/dead-letters``, whose metadata has the batch number. So a run that
dies before the end of the transaction has sent nothing, and the next run continues after the batch in the metadata:
readers with `isolation.level=read_committed` get each record once, as long as Kafka remembers the group
(`offsets.retention.minutes`).

Rows that a table refused are sent after their merge in the same way, with a position for each table: the columns of the
row as JSON, from the side table.

Headers: https://github.com/apache/kafka/blob/trunk/connect/runtime/src/main/java/org/apache/kafka/connect/runtime/
errors/DeadLetterQueueReporter.java. There is no stack trace; the exception's class is our kind of error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from jobs.batch import CommittedState, LandedBatch
from jobs.changes.columns import MOVE
from jobs.dead_letters.dead_letter import DeadLetter
from jobs.dead_letters.delivery import Delivery, deliver
from jobs.dead_letters.listing import Became, open_dead_letters
from jobs.destinations.base import Destination
from jobs.destinations.side_table import SideTable
from jobs.events.pending import PublishedThrough, published_through, unpublished
from jobs.failpoints import failpoint, failpoint_of_task
from jobs.iceberg.table_property import dead_letters_sent
from jobs.landing.framing import NAMES
from jobs.pipeline import Pipeline
from jobs.spark.spark_tasks import Batches, numbered, task_reports, telling
from resources.control_topic import ControlWriter, GroupProgress, Message
from resources.errors import BatchmergeError, CommitFailed
from resources.kafka_groups import group_metadata

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOG = logging.getLogger("batchmerge")
# No limit on the number.
_ALL = 2**31 - 1

PREFIX = "__connect.errors."
# Of a record's own headers these are sent too: without them nobody could decode it.
SCHEMA_IDS = frozenset(NAMES.values())
# Kafka Connect's names of the stages (org.apache.kafka.connect.runtime.errors.Stage).
STAGES = {"key": "KEY_CONVERTER", "value": "VALUE_CONVERTER", "transform": "TRANSFORMATION"}
_OTHER_STAGE = "TASK_PUT"


class DeadLetterTopic:
    """Sends the dead letters of landed batches to the topic; does nothing if the pipeline has no topic.

    Args of the constructor:
        refused_by: sends the rows that this table refused of its merged batches instead.
    """

    def __init__(self, pipeline: Pipeline, refused_by: Destination | None = None) -> None:
        self._pipeline, self._table = pipeline, refused_by
        self._options = pipeline.spec.dead_letters
        self._role = f"dead-letters/{refused_by.name}" if refused_by else "dead-letters"
        self._group = pipeline.group_of_role(self._role)
        self._writer: ControlWriter | None = None

    def publish(self) -> None:
        """Sends the dead letters of all landed batches that were not sent yet. A problem is only logged."""
        if self._options.topic is None:
            return
        try:
            self._publish(self._options.topic)
        except BatchmergeError as problem:
            _LOG.warning("dead letters could not be sent to the topic, the next run sends them: %s", problem)
            self._writer = None

    def first_unsent(self) -> int | None:
        """The first batch with dead letters that are still to be sent; None if there is none, or no topic.

        Raises:
            BatchmergeError: Kafka or a table cannot be read.
        """
        landed, there = self._dead_letters_by_batch() if self._options.topic else ([], ())
        if not landed or not there:
            return None
        newest = CommittedState.after(landed[-1])
        unsent = self._unsent(self._sent(newest), landed, newest)
        return next((batch.number for batch in unsent if batch.number in there), None)

    def _publish(self, topic: str) -> None:
        landed, there = self._dead_letters_by_batch()
        if not landed:
            return
        newest, limit = CommittedState.after(landed[-1]), self._options.time_limit_seconds
        was = self._sent(newest)
        for batch in self._unsent(was, landed, newest):
            if batch.number not in there and batch.number < newest.batch_number:
                continue
            reached = PublishedThrough(batch.number, batch.batch.commit_id)
            delivery = Delivery(
                self._pipeline.kafka,
                topic,
                self._options.create_topic,
                float(limit),
                was,
                # Not the batch's own offsets: Kafka refuses those of a topic that was deleted and forgotten since.
                GroupProgress(self._group, newest.offsets, reached.to_metadata()),
                failpoint_of_task("dead-letters.written"),
            )
            if batch.number in there:
                self._send(delivery, batch, landed)
            else:
                self._move(delivery)
            was = reached
            failpoint("dead-letters.sent")
        if was is not None and not self._has_sent():
            place, ever = self._pipeline.intermediate, dead_letters_sent(self._role)
            with suppress(CommitFailed):  # another commit prevents it: the next run writes it
                place.keep(place.catalog.require(place.identifier), ever.written(True, place.pipeline))

    def _has_sent(self) -> bool:
        """Whether this role has ever sent dead letters, by a property of the intermediate table that is written once:
        Kafka forgets the group with the position (`jobs.events.pending`)."""
        place = self._pipeline.intermediate
        properties = place.catalog.require(place.identifier).metadata.properties
        return dead_letters_sent(self._role).read(properties, place.pipeline)

    def _send(self, delivery: Delivery, batch: LandedBatch, landed: Sequence[LandedBatch]) -> None:
        """Has a Spark task send the dead letters of a batch."""
        self._writer = None  # the task's writer fences it
        spark = self._pipeline.spark(f"{self._role} to the topic", self._pipeline.intermediate.catalog)
        from resources.spark_errors import spark_errors

        with spark_errors(delivery.topic):
            rows, messages = self._dead_letters(spark, batch, landed)
            sent = task_reports(rows, telling(partial(deliver, delivery, messages)))
        if not sent:  # no dead letters, so there was no task
            self._move(delivery)

    def _move(self, delivery: Delivery) -> None:
        """Moves the position past a batch without dead letters."""
        self._writer = self._writer or delivery.writer()
        delivery.send(self._writer)

    def _dead_letters_by_batch(self) -> tuple[Sequence[LandedBatch], Collection[int]]:
        """The batches whose dead letters may be sent, and the numbers of those that have some."""
        if self._table is None:
            landed = self._pipeline.intermediate.landed().batches
            return landed, {b.number for b in landed if b.counts.quarantined}
        refused = self._table.refused()
        state = self._table.committed() if refused else None
        if state is None:
            return [], ()
        landed = self._pipeline.intermediate.landed().batches
        return [b for b in landed if b.number <= state.batch_number], refused.keys()

    def _dead_letters(
        self, spark: SparkSession, batch: LandedBatch, landed: Sequence[LandedBatch]
    ) -> tuple[DataFrame, Callable[[Batches], Iterator[Message]]]:
        """The input of the task that sends them, and the function that makes messages of it."""
        name, number = self._pipeline.name, batch.number
        if self._table is not None:
            return numbered(spark, 1), partial(_refused, name, self._table.side_tables(), number)
        became: Became | None = "again" if batch.batch.revises is not None else None
        if became is None and any(later.batch.revises is not None for later in landed if later.number > number):
            became = "first"
        dead_letters = open_dead_letters(self._pipeline, spark, number, number, became)
        rows = dead_letters.drop(MOVE.name).repartition(1).sortWithinPartitions("batch", "i")
        return rows, partial(_landed, name)

    def _sent(self, newest: CommittedState) -> PublishedThrough | None:
        """The position up to which dead letters are sent."""
        limit = self._options.time_limit_seconds
        return published_through(group_metadata(self._pipeline.kafka, self._group, newest.offsets, limit).values())

    def _unsent(
        self, sent: PublishedThrough | None, landed: Sequence[LandedBatch], newest: CommittedState
    ) -> Iterator[LandedBatch]:
        # If nothing was ever sent (the topic could not be written), dead letters of any age are sent.
        never = sent is None and not self._has_sent()
        states = unpublished(sent, landed, newest, int(time.time() * 1000), never=never)
        wanted = {state.batch_number for state in states}
        return (batch for batch in landed if batch.number in wanted)


def _landed(pipeline: str, batches: Batches) -> Iterator[Message]:
    """Rows of ``dead_letters.sql.j2`` as messages, in a task."""
    for batch in batches:
        for row in batch.to_pylist():
            headers = [(one["key"], one["value"]) for one in row.pop("headers") or () if one["key"] in SCHEMA_IDS]
            yield to_message(pipeline, DeadLetter(table="", **row), headers)


def _refused(pipeline: str, sides: Sequence[SideTable], batch: int, _: Batches) -> Iterator[Message]:
    """The refused rows of a batch, from side tables, as messages, in a task."""
    for side in sides:
        for letter in side.dead_letters(_ALL, True, (batch, batch)):
            yield to_message(pipeline, letter)


def to_message(pipeline: str, letter: DeadLetter, own: Sequence[tuple[str, bytes]] = ()) -> Message:
    """The record with its original bytes, its `own` headers, and Kafka Connect's."""
    said = {
        "topic": letter.topic,
        "partition": str(letter.partition),
        "offset": str(letter.offset),
        "connector.name": pipeline,
        "task.id": "0",
        "stage": STAGES.get(letter.stage, _OTHER_STAGE),
        "class.name": "batchmerge",
        "exception.class.name": letter.kind,
        "exception.message": letter.message,
    }
    headers = [*own, *((PREFIX + name, value.encode()) for name, value in said.items())]
    time_ = int(letter.timestamp.timestamp() * 1000) if letter.timestamp else 0
    return Message(letter.value, letter.key, headers, time_)
