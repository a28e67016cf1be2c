"""Publishes the events of one role in transactions that a newer run of the role can fence (`jobs.events.roles`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Lock

from jobs.batch import CommittedState
from jobs.events.messages import Payload, encode, make_event
from jobs.events.pending import Due, PublishedThrough, published_through
from jobs.failpoints import failpoint
from jobs.offsets import Offsets
from jobs.spec.control import Control
from resources.control_topic import ControlWriter, GroupProgress, Message
from resources.errors import Interrupted
from resources.kafka import KafkaCluster
from resources.kafka_groups import group_metadata

# The most batches in one transaction: after a long outage, or of many topics, the events are published in several.
_AT_ONCE = 100


@dataclass(frozen=True)
class Unpublished:
    """Events of a pipeline, or of a member: payloads, or what is due."""

    pipeline: str
    point: str
    payloads: Sequence[Payload] = ()
    due: Due | None = None


# Unpublished events of one batch, and the state that they publish, if they are due.
_Part = tuple[Unpublished, Sequence[Payload], CommittedState | None]


class Role:
    """One role of a pipeline: publishes events and keeps the newest published batches. Opening it waits for Kafka."""

    def __init__(self, control: Control, kafka: KafkaCluster, run_id: str, group: str) -> None:
        self.group = group
        self._control, self._kafka, self._run_id = control, kafka, run_id
        self._opening = Lock()
        self._is_used = self._may_return = False
        self._renew()

    def _renew(self) -> None:
        limit = float(self._control.time_limit_seconds)
        self._writer = ControlWriter(self._kafka, self._control.topic, self.group, limit)
        # By group and pipeline.
        self._published = dict[tuple[str, str], PublishedThrough | None]()

    def begin(self) -> None:
        """Begins a piece of work. A role that was used for earlier work is taken back from a run that took it since
        then; a run that takes it later is newer and keeps it."""
        self._may_return = self._is_used

    def open(self) -> None:
        """Fences older runs of this role, if not done yet."""
        with self._opening:
            if not self._writer.is_open:
                self._writer.open(self._control.create)

    def send(self, events: Sequence[Unpublished]) -> None:
        """Publishes these events, in their order, and moves their groups.

        Raises:
            Interrupted: a newer run has this role.
        """
        try:
            self._send(events)
        except Interrupted:
            if not self._may_return:
                raise
            self._renew()
            self._send(events)
        self._is_used = True

    def _send(self, events: Sequence[Unpublished]) -> None:
        # Also if nothing is pending: a dead run's open transaction blocks all readers until it times out. And before
        # the groups are read: older runs of this role may move them until they are fenced.
        self.open()
        self._read_groups(events)
        parts = (part for one in events for part in self._parts(one))
        while some := list(islice(parts, _AT_ONCE)):
            self._send_some(some)

    def _read_groups(self, events: Iterable[Unpublished]) -> None:
        """Reads the newest published batches, which are kept in the metadata of the groups' offsets."""
        wanted = dict[str, dict[str, Offsets]]()
        for one in events:
            # What only this role moves stays known: a newer run would have fenced this one.
            if (due := one.due) and not (due.alone and self._published.get((due.group, one.pipeline))):
                wanted.setdefault(due.group, {})[one.pipeline] = due.state.offsets
        for group, members in wanted.items():
            every = [partition for offsets in members.values() for partition in offsets]
            said = group_metadata(self._kafka, group, every, float(self._control.time_limit_seconds))
            for name, offsets in members.items():
                self._published[group, name] = published_through(said[tp] for tp in offsets if tp in said)

    def _parts(self, one: Unpublished) -> Iterator[_Part]:
        if (due := one.due) is None:
            yield one, one.payloads, None
            return
        for state in due.states(self._published.get((due.group, one.pipeline))):
            self._published[due.group, one.pipeline] = PublishedThrough(state.batch_number, state.commit_id)
            yield one, due.payloads(state), state

    def _send_some(self, some: Sequence[_Part]) -> None:
        """Publishes these in one transaction."""
        points = dict.fromkeys(one.point for one, *_ in some)
        messages, progress = list[Message](), dict[tuple[str, str], GroupProgress]()
        for one, payloads, state in some:
            events = (make_event(one.pipeline, self._run_id, payload) for payload in payloads)
            messages += [Message(encode(event), one.pipeline.encode()) for event in events]
            if one.due and state:
                reached = PublishedThrough(state.batch_number, state.commit_id).to_metadata()
                # Kafka refuses those of a topic that was deleted, and forgotten since.
                known = one.due.state.offsets.keys()
                present = {tp: offset for tp, offset in state.offsets.items() if tp in known}
                progress[one.due.group, one.pipeline] = GroupProgress(one.due.group, present, reached)

        def reach(end: str) -> None:
            for point in points:
                failpoint(f"events.{point}.{end}")

        self._writer.send_messages(messages, [*progress.values()], lambda: reach("written"))
        self._may_return = False  # only a commit shows that nobody else has the role
        reach("sent")


@dataclass(frozen=True)
class PipelineRole:
    """What one pipeline, or member, publishes in a role.

    Attributes:
        group: the role's.
        send: publishes events, now or soon.
    """

    pipeline: str
    group: str
    send: Callable[[Sequence[Unpublished]], None]

    def publish(self, point: str, payloads: Sequence[Payload]) -> None:
        self.send([Unpublished(self.pipeline, point, payloads)])

    def publish_due(self, all_due: Iterable[Due]) -> None:
        """Publishes the events of all unpublished states and moves the groups, one group after the other."""
        for due in all_due:
            self.send([Unpublished(self.pipeline, due.point, due=due)])
