"""Commit events of the members of a pipeline that work side by side (`jobs.members`): one transaction for many.

With hundreds of topics, a transaction for each batch would take longer than the batches. So events are collected, and
published every second, before records are read, and when all are done. All members share one role, with one
`transactional.id` and one consumer group. The group's metadata for a topic's partitions has the newest published batch
of that topic's member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from threading import Event, Lock, Thread

from jobs.events.quietly import quietly
from jobs.events.role import Role, Unpublished
from jobs.failpoints import GROUP, failpoint
from jobs.offsets import Offsets, TopicPartition
from jobs.spec.control import Control
from resources.errors import BatchmergeError
from resources.kafka import KafkaCluster
from resources.kafka_groups import commit_group, group_offsets

# Seconds between two transactions.
_EVERY = 1.0


class SharedEvents:
    """The events of all members of a pipeline, published by one role.

    Args of the constructor:
        pipeline: the pipeline's name.
        role: part of the consumer group's name and of the `transactional.id`.
    """

    def __init__(self, pipeline: str, control: Control, kafka: KafkaCluster, run_id: str, role: str) -> None:
        self.group, self._tables_group = control.group(pipeline, role), control.group(pipeline)
        self._control, self._kafka = control, kafka
        self._new_role = partial(Role, control, kafka, run_id, self.group)
        self._role = self._new_role()
        self._lock, self._publishing = Lock(), Lock()
        self._unpublished, self._moved = list[Unpublished](), dict[TopicPartition, int]()
        # Whether publishing has failed in this block.
        self._failed = False
        self._all_published = False

    def add(self, events: Iterable[Unpublished]) -> None:
        with self._lock:
            self._unpublished += events

    def published_check(self, partitions: Callable[[], Iterable[TopicPartition]]) -> Callable[[Offsets], bool]:
        """A function that tells whether the events of a member's committed offsets are published.

        A run that dies after a commit leaves its events unpublished. So a process queries Kafka once for all members,
        and again after it could not publish. If Kafka does not answer, the events count as published.

        Args:
            partitions: returns the partitions of all members.
        """
        if self._all_published:
            return lambda _: True
        group = self.group if self._control.enabled else self._tables_group
        try:
            said = group_offsets(self._kafka, group, partitions())
        except BatchmergeError:
            return lambda _: True
        self._all_published = True  # the callers publish what is missing
        return lambda committed: all(said.get(tp) == offset for tp, offset in committed.items())

    def move_group(self, offsets: Offsets) -> None:
        """Moves the consumer group that follows the tables, if the control topic is off."""
        with self._lock:
            self._moved.update(offsets)

    @contextmanager
    def published(self) -> Iterator[None]:
        """Publishes the events that the block adds every second, and the rest after it. A problem is logged; then
        nothing more is published in this block."""
        self._failed, over = False, Event()
        self._role.begin()

        def go_on() -> None:
            with suppress(KeyboardInterrupt):  # the run has to end: the next one publishes the rest
                while not over.wait(_EVERY):
                    self.publish()

        thread = Thread(target=copy_context().run, args=(go_on,), daemon=True, name="batchmerge-shared-events")
        thread.start()
        try:
            yield
        finally:
            over.set()
            self.publish()

    def publish(self) -> None:
        """Publishes the events that were added so far."""
        with self._publishing:
            with self._lock:
                events, self._unpublished = self._unpublished, []
                moved, self._moved = self._moved, {}
            if (events or moved) and not self._failed:
                work = (lambda: self._role.send(events)) if events else (lambda: self._move(moved))
                self._failed = not quietly(self._control, self.group, work)
                self._all_published &= not self._failed
                # A role that failed may still be at work.
                self._role = self._new_role() if self._failed else self._role

    def _move(self, offsets: Offsets) -> None:
        commit_group(self._kafka, self._tables_group, offsets)
        failpoint(GROUP)
