"""Publishes the events of one role in transactions that a newer run of the role can fence (`jobs.events.roles`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock

from jobs.events.messages import Payload, encode, make_event
from jobs.events.pending import Due, PublishedThrough, published_through
from jobs.failpoints import failpoint
from jobs.spec.control import Control
from resources.control_topic import ControlWriter, GroupProgress, Message
from resources.kafka import KafkaCluster
from resources.kafka_groups import group_metadata

# The most batches in one transaction: after a long outage the events are published in several.
_AT_ONCE = 100


class Role:
    """One role of a pipeline: publishes events and keeps the newest published batch. Opening it waits for Kafka.

    Attributes:
        is_used: it has published what was pending; it is kept for the next batch.
    """

    def __init__(self, pipeline: str, control: Control, kafka: KafkaCluster, run_id: str, group: str) -> None:
        self.group = group
        self._pipeline, self._control, self._kafka, self._run_id = pipeline, control, kafka, run_id
        self._published = dict[str, PublishedThrough]()
        self._opening = Lock()
        self.is_used = False
        self._writer = ControlWriter(kafka, control.topic, group, float(control.time_limit_seconds))

    def published_through(self, due: Due) -> PublishedThrough | None:
        """The newest batch in the group's metadata, which is stored with one of the state's offsets."""
        if due.alone and (known := self._published.get(due.group)):
            return known  # a newer run would have fenced this one, and its next transaction fails
        limit = self._control.time_limit_seconds
        return published_through(group_metadata(self._kafka, due.group, due.state.offsets, limit).values())

    def publish(self, point: str, payloads: Sequence[Payload], progress: Sequence[GroupProgress] = ()) -> None:
        """Sends these events and moves these groups in one transaction."""
        self.open()
        key = self._pipeline.encode()
        messages = [Message(encode(make_event(self._pipeline, self._run_id, payload)), key) for payload in payloads]
        self._writer.send_messages(messages, progress, lambda: failpoint(f"events.{point}.written"))
        failpoint(f"events.{point}.sent")

    def publish_due(self, all_due: Iterable[Due]) -> None:
        """Publishes the events of all unpublished states and moves the groups, one group after the other."""
        for due in all_due:
            # Also if nothing is pending: a dead run's open transaction blocks all readers until it times out, and older
            # runs of this role may move the metadata until they are fenced.
            self.open()
            states = due.states(self.published_through(due))
            for first in range(0, len(states), _AT_ONCE):
                some = states[first : first + _AT_ONCE]
                newest = PublishedThrough(some[-1].batch_number, some[-1].commit_id)
                payloads = [payload for state in some for payload in due.payloads(state)]
                self.publish(due.point, payloads, [GroupProgress(due.group, some[-1].offsets, newest.to_metadata())])
                self._published[due.group] = newest
            self.is_used = True

    def open(self) -> None:
        """Fences older runs of this role, if not done yet."""
        with self._opening:
            if not self._writer.is_open:
                self._writer.open(self._control.create)
