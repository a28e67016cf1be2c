"""The dead letters of one batch on their way to the topic, in one Kafka transaction with the position that they reach.

Rows that are dead letters are sent by the one task of Spark that has them, so that none passes through the run. Any
number of runs and tasks may try: whoever opens a writer fences those before it, and sends only if the position is still
the one that its run went by. So a task that is repeated, or of a run that died, sends nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from jobs.events.pending import PublishedThrough, published_through
from jobs.spark_tasks import Batches, report_row
from resources.control_topic import ControlWriter, GroupProgress, Message
from resources.errors import Interrupted
from resources.kafka import KafkaCluster
from resources.kafka_groups import group_metadata


@dataclass(frozen=True)
class Delivery:
    """To where, and from which position to which; travels to a task.

    Attributes:
        create: make the topic where it is missing.
        was: the position that the run went by. progress: the one that is reached.
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
        """Not opened yet."""
        return ControlWriter(self.cluster, self.topic, self.progress.group, self.seconds)

    def send(self, writer: ControlWriter, messages: Iterable[Message] = ()) -> None:
        """Sends the messages and moves the position.

        Args:
            writer: one that is open has seen `was` since, or is fenced.

        Raises:
            Interrupted: another run has moved the position. Others: as `ControlWriter.send_messages`.
        """
        if not writer.is_open:
            writer.open(self.create)
            # Only now: until an older writer is fenced it may move the position.
            found = group_metadata(self.cluster, self.progress.group, self.progress.offsets, self.seconds).values()
            if published_through(found) != self.was:
                raise Interrupted("another run has sent them", where=self.topic, remedy="nothing to do")
        writer.send_messages(messages, [self.progress], self.before_commit)


@dataclass(frozen=True)
class DeliveryTask:
    """The function of the one task that has all dead letters of a batch; it reports that they are sent."""

    delivery: Delivery
    messages: Callable[[Batches], Iterator[Message]]

    def __call__(self, batches: Batches) -> Batches:
        self.delivery.send(self.delivery.writer(), self.messages(batches))
        yield report_row("sent")
