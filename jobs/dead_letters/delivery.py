"""Sends the dead letters of one batch to the topic, in one Kafka transaction with the new position.

One Spark task reads and sends them, so that no row passes through the run. Any number of runs and tasks may try:
opening a writer fences earlier ones, and it sends only if the position is still the one that its run read. So a task
that is repeated, or of a run that died, sends nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from jobs.events.pending import PublishedThrough, published_through
from jobs.spark.spark_tasks import Batches, report_row
from resources.control_topic import ControlWriter, GroupProgress, Message
from resources.errors import Interrupted
from resources.kafka import KafkaCluster
from resources.kafka_groups import group_metadata


@dataclass(frozen=True)
class Delivery:
    """The topic, and the positions before and after; travels to a task.

    Attributes:
        create: create the topic if it is missing.
        was: the position that the run read. progress: the new position.
        before_commit: called when everything is written and nothing is committed.
    """

    cluster: KafkaCluster
    topic: str
    create: bool
    seconds: float
    was: PublishedThrough | None
    progress: GroupProgress
    before_commit: Callable[[], None]

    def writer(self) -> ControlWriter:
        """A new writer, not opened yet."""
        if_missing = "create it, or set `dead_letters.create_topic: true`, or leave `dead_letters.topic` out"
        return ControlWriter(
            self.cluster, self.topic, self.progress.group, self.seconds, "dead-letter topic", if_missing
        )

    def send(self, writer: ControlWriter, messages: Iterable[Message] = ()) -> None:
        """Sends the messages and moves the position.

        Args:
            writer: if it is open already, `was` is still the position, or the writer is fenced.

        Raises:
            Interrupted: another run has moved the position. Others: as `ControlWriter.send_messages`.
        """
        if not writer.is_open:
            writer.open(self.create)
            # Only after opening: until older writers are fenced they may move the position.
            found = group_metadata(self.cluster, self.progress.group, self.progress.offsets, self.seconds).values()
            if published_through(found) != self.was:
                raise Interrupted("another run has sent these dead letters", where=self.topic, remedy="nothing to do")
        writer.send_messages(messages, [self.progress], self.before_commit)


def deliver(delivery: Delivery, messages: Callable[[Batches], Iterator[Message]], batches: Batches) -> Batches:
    """What the task does that gets all dead letters of a batch; it reports when they are sent."""
    delivery.send(delivery.writer(), messages(batches))
    yield report_row("sent")
