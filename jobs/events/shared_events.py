"""Commit events of the members of a pipeline that work side by side (`jobs.members`): one transaction for many.

With hundreds of topics, a transaction for each batch would take longer than the batches. So events are collected, and
published every second, before records are read, and when all are done. All members share one role, with one
`transactional.id` and one consumer group. The group's metadata for a topic's partitions has the newest published batch
of that topic's member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from threading import Event, Lock, Thread

from jobs.batch import CommittedState
from jobs.events.messages import Payload, encode, make_event
from jobs.events.pending import Due, PublishedThrough, published_through
from jobs.events.quietly import quietly
from jobs.failpoints import GROUP, failpoint
from jobs.offsets import Offsets, TopicPartition
from jobs.spec.control import Control
from resources.control_topic import ControlWriter, GroupProgress, Message
from resources.errors import BatchmergeError, Interrupted
from resources.kafka import KafkaCluster
from resources.kafka_groups import commit_group, group_metadata, group_offsets

# Seconds between two transactions.
_EVERY = 1.0
# The most members whose events are in one transaction.
_AT_ONCE = 200


@dataclass(frozen=True)
class _MemberEvents:
    """Unpublished events of a member: payloads, or what is due."""

    pipeline: str
    point: str
    payloads: Sequence[Payload] = ()
    due: Due | None = None

    def pending(self, published: PublishedThrough | None) -> tuple[list[Payload], CommittedState | None]:
        """The payloads, and the newest state that they publish."""
        if self.due is None:
            return list(self.payloads), None
        states = self.due.states(published)
        return [payload for state in states for payload in self.due.payloads(state)], states[-1] if states else None


# Events of a member that have to be in one transaction.
_EventGroup = Sequence[_MemberEvents]


class SharedEvents:
    """The events of all members of a pipeline, published by one role.

    Args of the constructor:
        pipeline: the pipeline's name.
        role: part of the consumer group's name and of the `transactional.id`.
    """

    def __init__(self, pipeline: str, control: Control, kafka: KafkaCluster, run_id: str, role: str) -> None:
        self.group, self._tables_group = control.group(pipeline, role), control.group(pipeline)
        self._control, self._kafka, self._run_id = control, kafka, run_id
        self._writer = self._new_writer()
        self._lock, self._publishing = Lock(), Lock()
        self._unpublished, self._moved = list[_EventGroup](), dict[TopicPartition, int]()
        # Whether the writer has failed in this block; whether it is open from an earlier one and not used in this one.
        self._failed, self._is_reused = False, False
        self._all_published = False

    def _new_writer(self) -> ControlWriter:
        return ControlWriter(self._kafka, self._control.topic, self.group, float(self._control.time_limit_seconds))

    def add(self, group: _EventGroup) -> None:
        with self._lock:
            self._unpublished.append(group)

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
        self._failed, self._is_reused, over = False, self._writer.is_open, Event()

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
                groups, self._unpublished = self._unpublished, []
                moved, self._moved = self._moved, {}
            if (groups or moved) and not self._failed:
                work = (lambda: self._send_or_take_over(groups)) if groups else (lambda: self._move(moved))
                self._failed = not quietly(self._control, self.group, work)
                self._all_published &= not self._failed
                # A failed writer may still be working.
                self._writer = self._new_writer() if self._failed else self._writer

    def _move(self, offsets: Offsets) -> None:
        commit_group(self._kafka, self._tables_group, offsets)
        failpoint(GROUP)

    def _send_or_take_over(self, groups: Sequence[_EventGroup]) -> None:
        """Sends the events. Takes the role back from a run that took it before this block began and has ended; a run
        that takes it later is newer and keeps it."""
        try:
            self._send(groups)
        except Interrupted:
            if not self._is_reused:
                raise
            self._writer = self._new_writer()
            self._send(groups)
        self._is_reused = False

    def _send(self, groups: Sequence[_EventGroup]) -> None:
        if not self._writer.is_open:
            # Before the groups are read: afterwards no older run of this role can move them.
            self._writer.open(self._control.create)
        known = self._known([one for group in groups for one in group])
        for some in (groups[n : n + _AT_ONCE] for n in range(0, len(groups), _AT_ONCE)):
            self._send_some([one for group in some for one in group], known)

    def _send_some(
        self, events: Sequence[_MemberEvents], known: dict[tuple[str, str], PublishedThrough | None]
    ) -> None:
        messages, progress, points = list[Message](), list[GroupProgress](), list[str]()
        for one in events:
            payloads, state = one.pending(known.get((one.due.group, one.pipeline)) if one.due else None)
            values = [encode(make_event(one.pipeline, self._run_id, payload)) for payload in payloads]
            messages += [Message(value, one.pipeline.encode()) for value in values]
            points += [one.point] if values else []
            if one.due and state:
                reached = PublishedThrough(state.batch_number, state.commit_id)
                progress.append(GroupProgress(one.due.group, state.offsets, reached.to_metadata()))
                known[one.due.group, one.pipeline] = reached
        if not messages:
            return

        def before_commit() -> None:
            for point in dict.fromkeys(points):
                failpoint(f"events.{point}.written")

        self._writer.send_messages(messages, progress, before_commit)
        for point in dict.fromkeys(points):
            failpoint(f"events.{point}.sent")

    def _known(self, events: Sequence[_MemberEvents]) -> dict[tuple[str, str], PublishedThrough | None]:
        """The newest published batch by group and member."""
        wanted = dict[str, dict[str, Offsets]]()
        for one in events:
            if one.due:
                wanted.setdefault(one.due.group, {})[one.pipeline] = one.due.state.offsets
        found = dict[tuple[str, str], PublishedThrough | None]()
        for group, members in wanted.items():
            every = [partition for offsets in members.values() for partition in offsets]
            said = group_metadata(self._kafka, group, every, float(self._control.time_limit_seconds))
            for name, offsets in members.items():
                found[group, name] = published_through([said[tp] for tp in offsets if tp in said])
        return found


@dataclass(frozen=True)
class SharedRole:
    """One member's part of the role."""

    events: SharedEvents
    pipeline: str

    @property
    def group(self) -> str:
        return self.events.group

    def publish(self, point: str, payloads: Sequence[Payload]) -> None:
        self.events.add([_MemberEvents(self.pipeline, point, payloads)])

    def publish_due(self, all_due: Iterable[Due]) -> None:
        self.events.add([_MemberEvents(self.pipeline, due.point, due=due) for due in all_due])
