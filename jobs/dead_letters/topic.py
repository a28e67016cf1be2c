"""The dead-letter topic (`dead_letters.topic`): each dead letter once, as Kafka Connect's sinks would send it.

After a batch is landed its dead letters are sent in one Kafka transaction. The same transaction commits offsets of the
consumer group ``batchmerge-<pipeline>/dead-letters``, whose metadata names the batch. So a run that dies before the
transaction's end has sent nothing, and the next one goes on after the batch that is named there: once per record for
readers with `isolation.level=read_committed`, as long as Kafka remembers the group (`offsets.retention.minutes`).

Rows that only one table refuses follow after their merge, in the same way, with a position for each table. They are
sent as the side table has them: the columns of the row as JSON.

Headers: https://github.com/apache/kafka/blob/trunk/connect/runtime/src/main/java/org/apache/kafka/connect/runtime/
errors/DeadLetterQueueReporter.java. There is no stack trace; the exception's class is our kind of error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Sequence

from pyspark.sql import SparkSession

from jobs.batch import CommittedState, LandedBatch
from jobs.dead_letters.dead_letter import DeadLetter
from jobs.dead_letters.listing import ALL, letters
from jobs.destinations.base import Destination
from jobs.events.pending import PublishedThrough, pending, published_through
from jobs.failpoints import failpoint
from jobs.pipeline import Pipeline
from resources.control_topic import ControlWriter, GroupProgress, Message, read_metadata
from resources.errors import BatchmergeError

_LOG = logging.getLogger("batchmerge")

PREFIX = "__connect.errors."
# What Kafka Connect calls the stages (org.apache.kafka.connect.runtime.errors.Stage).
STAGES = {"key": "KEY_CONVERTER", "value": "VALUE_CONVERTER", "transform": "TRANSFORMATION"}
_OTHER_STAGE = "TASK_PUT"


class DeadLetterTopic:
    """Sends the dead letters of landed batches to the topic; does nothing where the pipeline has none.

    Args of the constructor:
        refused_by: sends what this table refuses of its merged batches instead.
    """

    def __init__(self, pipeline: Pipeline, refused_by: Destination | None = None) -> None:
        self._pipeline, self._table = pipeline, refused_by
        self._options = pipeline.spec.dead_letters
        self._group = pipeline.group_of_role(f"dead-letters/{refused_by.name}" if refused_by else "dead-letters")
        self._writer: ControlWriter | None = None

    def publish(self, spark: SparkSession | None = None) -> None:
        """Sends the dead letters of all landed batches that were not sent yet. A problem is only a warning."""
        if self._options.topic is None:
            return
        try:
            self._publish(spark)
        except BatchmergeError as problem:
            _LOG.warning("dead letters could not be sent to the topic, the next run sends them: %s", problem)
            self._writer = None

    def _publish(self, spark: SparkSession | None) -> None:
        landed, there = self._letters_by_batch()
        if not landed:
            return
        # Older runs have to be fenced before the metadata is read: until then they may move it.
        writer = self._open()
        newest = CommittedState.after(landed[-1])
        for batch in self._unsent(landed, newest):
            if batch.number not in there and batch.number < newest.batch_number:
                continue
            state = CommittedState.after(batch)
            messages = (to_message(self._pipeline.name, letter) for letter in self._letters(batch.number, spark))
            newest_sent = PublishedThrough(state.batch_number, state.commit_id).to_metadata()
            progress = [GroupProgress(self._group, state.offsets, newest_sent)]
            sent = messages if batch.number in there else ()
            writer.send_messages(sent, progress, lambda: failpoint("dead-letters.written"))
            failpoint("dead-letters.sent")

    def _letters_by_batch(self) -> tuple[Sequence[LandedBatch], Collection[int]]:
        """The batches whose letters may be sent, and which of them have some; none of a table without any."""
        if self._table is None:
            landed = self._pipeline.intermediate.landed().batches
            return landed, {b.number for b in landed if b.counts.quarantined}
        refused = self._table.refused()
        state = self._table.committed() if refused else None
        if state is None:
            return [], ()
        landed = self._pipeline.intermediate.landed().batches
        return [b for b in landed if b.number <= state.batch_number], refused.keys()

    def _letters(self, batch: int, spark: SparkSession | None) -> Iterator[DeadLetter]:
        if self._table is None:
            return letters(self._pipeline, ALL, True, batch, batch, spark)
        return self._table.dead_letters(ALL, values=True, batches=(batch, batch))

    def _unsent(self, landed: Sequence[LandedBatch], newest: CommittedState) -> Iterator[LandedBatch]:
        limit = self._options.time_limit_seconds
        sent = published_through(read_metadata(self._pipeline.kafka, self._group, newest.offsets, limit))
        wanted = {state.batch_number for state in pending(sent, landed, newest, int(time.time() * 1000))}
        return (batch for batch in landed if batch.number in wanted)

    def _open(self) -> ControlWriter:
        if self._writer is None:
            assert self._options.topic is not None, "checked by publish"
            limit = float(self._options.time_limit_seconds)
            writer = ControlWriter(self._pipeline.kafka, self._options.topic, self._group, limit)
            writer.open(self._options.create_topic)
            self._writer = writer
        return self._writer


def to_message(pipeline: str, letter: DeadLetter) -> Message:
    """The record as it came, with Kafka Connect's headers."""
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
    headers = [(PREFIX + name, value.encode()) for name, value in said.items()]
    time_ = int(letter.timestamp.timestamp() * 1000) if letter.timestamp else 0
    return Message(letter.value, letter.key, headers, time_)
