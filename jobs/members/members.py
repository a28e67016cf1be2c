"""A pipeline with `source.for_each`, opened: its members land and are merged side by side.

Where records name tables (`new_tables`), there is one landing; then the tables of each name are merged like a member's.

Each member is a pipeline like any other, so the protocol is the protocol (jobs/protocol.py). Here is only what makes
hundreds of them cheap: Kafka is asked about all topics at once, catalogs and clients are shared, one Spark job reads
the records of all that are landed (jobs/landing/reads.py), one more does the merges of all that take one task, a few
Spark sessions serve the others in turn, one Kafka transaction has the events of many members
(jobs/events/shared_events.py), and a member without anything new costs one look at its committed state. A member that
fails stops no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from jobs.batch import CommittedState
from jobs.events.shared_events import SharedEvents
from jobs.landing.reads import Reads, WantedRead, read_in_one_job
from jobs.landing.task_report import TaskReport
from jobs.members.known_members import KnownMembers
from jobs.members.shared_jobs import Participant, SharedJobs
from jobs.members.side_by_side import Outcome, outcome_of, problems_of, side_by_side
from jobs.members.topics import Seen
from jobs.offsets import Offsets
from jobs.pipeline import Pipeline
from jobs.planning.plan import TopicState
from jobs.spark.sessions import OneSession, SessionOfMany
from jobs.spark.spark_tasks import OneTask, Task, reports_for_each
from jobs.spec.members import Member
from resources.connections import SparkConnection
from resources.errors import BatchmergeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
W = TypeVar("W")
A = TypeVar("A")

# One Spark job does the work of at most this many: each has a thread meanwhile, and each task its files open.
_AT_MOST = 200
# How many questions to a catalog at a time: they mostly wait, and a sensor has seconds for all of them.
_QUESTIONS = 32


@dataclass
class Members(KnownMembers):
    """The members of a pipeline, with the Spark sessions and the publishers of events in which work on them is done."""

    _sessions: dict[str, OneSession] = field(default_factory=dict, init=False)
    _roles: dict[str, SharedEvents] = field(default_factory=dict, init=False)

    def landed(self) -> tuple[list[CommittedState], dict[str, BatchmergeError]]:
        """The landed states of all members that have one; the errors of those that cannot be asked, by key.

        Raises:
            BatchmergeError: not one can be asked.
        """
        known = self.known()

        def ask(pipeline: Pipeline) -> CommittedState | None:
            return pipeline.intermediate.committed()

        outcomes = list(self.each("landed", known, ask, at_once=_QUESTIONS))
        failed = problems_of(outcomes)
        if failed and len(failed) == len(known):
            raise next(iter(failed.values()))
        return [outcome.done for outcome in outcomes if outcome.done], failed

    def each(
        self,
        role: str,
        members: Sequence[Member],
        work: Callable[[Pipeline], T | None],
        at_once: int | None = None,
    ) -> Iterator[Outcome[T]]:
        """Does the work for each member, and yields the outcomes as they come: of those that had something to do, and
        of those that failed.

        Args:
            role: names the Spark sessions; two that work at the same time must not share one.
            at_once: how many at a time; None: as many as the file allows.
        """
        at_once = max(1, min(at_once or self.spec.batch.at_once, len(members)))
        sessions = [self._session(f"{role}-{worker}") for worker in range(at_once)]
        free: SimpleQueue[OneSession] = SimpleQueue()
        for one_of_them in sessions:
            free.put(one_of_them)

        def one(member: Member) -> Outcome[T]:
            session = free.get()
            try:
                return outcome_of(member, lambda: work(self.open(member, session)))
            finally:
                free.put(session)

        yield from side_by_side(members, at_once, one, sessions)

    def in_turns(
        self,
        role: str,
        work: Callable[[Pipeline], T | None],
        turn: Callable[[], AbstractContextManager[None]],
    ) -> Iterator[Outcome[T]]:
        """As `each`, for all members and a few in each turn: what else waits for these tables goes in between."""
        known, at_once = self.known(), self.spec.batch.at_once
        for some in (known[n : n + at_once] for n in range(0, len(known), at_once)):
            with turn():
                outcomes = list(self.each(role, some, work))
            yield from outcomes

    def each_seen(
        self, role: str, seen: Seen, work: Callable[[Pipeline, TopicState | None], T | None]
    ) -> Iterator[Outcome[T]]:
        """As `each`, for work that needs what Kafka has for the member's topic; None if Kafka has not answered."""
        states = {member.name: seen.states.get(member.key) for member in seen.members}
        return self.each(role, seen.members, lambda pipeline: work(pipeline, states[pipeline.name]))

    def each_reading(
        self, role: str, seen: Seen, work: Callable[[Pipeline, TopicState], T | None]
    ) -> Iterator[Outcome[T]]:
        """As `each_seen`, for work that reads Kafka: one Spark job reads for all that wait for records."""
        session, events = self._session(role, SessionOfMany), self._events(role)

        def one(member: Member, participant: Participant[WantedRead, list[TaskReport]]) -> T | None:
            reads: Reads = lambda _spark, wanted: participant(wanted)  # noqa: E731
            return work(self.open(member, participant.slot, reads, events=events), seen.states[member.key])

        def run_job(wanted: Sequence[WantedRead]) -> list[list[TaskReport]]:
            events.publish()
            return read_in_one_job(session.get(role), wanted)

        with events.published():
            yield from self._in_shared_jobs(seen.members, [session] * self.spec.batch.at_once, run_job, one)

    def each_merging(
        self,
        role: str,
        members: Sequence[Member],
        work: Callable[[Pipeline], T | None],
    ) -> Iterator[Outcome[T]]:
        """As `each`, for work that merges: one Spark job does what takes one task of each table."""
        shared = self._session(f"{role}-shared", SessionOfMany)
        own = [self._session(f"{role}-{worker}") for worker in range(self.spec.batch.at_once)]
        # Tables that records name have the same topics: each is a role of its own.
        events = None if self.spec.new_tables else self._events(role)

        def one(member: Member, participant: Participant[Task, list[Any]]) -> T | None:
            return work(self.open(member, participant.slot, one_task=_SharedTask(participant), events=events))

        def run_job(tasks: Sequence[Task]) -> list[list[Any]]:
            return reports_for_each(shared.get(role), tasks)

        with events.published() if events else nullcontext():
            yield from self._in_shared_jobs(members, own, run_job, one, shared)

    def _in_shared_jobs(
        self,
        members: Sequence[Member],
        sessions: Sequence[OneSession],
        do: Callable[[Sequence[W]], list[A]],
        work: Callable[[Member, Participant[W, A]], T | None],
        *others: OneSession,
    ) -> Iterator[Outcome[T]]:
        """The outcomes of members that share Spark jobs: they wait for each other, and one job serves several."""
        for some in (members[n : n + _AT_MOST] for n in range(0, len(members), _AT_MOST)):
            shared = SharedJobs(len(some), sessions, do)

            def one(member: Member, shared: SharedJobs[W, A] = shared) -> Outcome[T]:
                def join() -> T | None:
                    with shared.join() as participant:
                        return work(member, participant)

                return outcome_of(member, join)

            yield from side_by_side(some, len(some), one, [*sessions, *others])

    def published_check(self, role: str) -> Callable[[Offsets], bool]:
        """Whether the events of a member's commits are published; names publish with their next batch."""
        if self.spec.new_tables:
            return lambda _: True
        topics = [member.key for member in self.known()]
        return self._events(role).published_check(lambda: self._kafka.partitions(topics))

    def _events(self, role: str) -> SharedEvents:
        return self._roles.setdefault(role, SharedEvents(self.name, self.spec.control, self._kafka, self.run_id, role))

    def _session(self, role: str, kind: type[OneSession] = OneSession) -> OneSession:
        """The session of this role, which lives as long as the members do."""
        return self._sessions.setdefault(role, kind(partial(self._open_session, role)))

    def _open_session(self, role: str) -> SparkSession:
        """A worker's session: it reaches all that any member needs, since their connections are the same."""
        from resources.spark import open_session

        reached = {k: v for one in self._reached() for k, v in one.items()}
        connection = self.connections.get(self.spec.spark, SparkConnection)
        return open_session(connection, f"{self.name}/{role}", reached)

    def _reached(self) -> Iterator[dict[str, str]]:
        pipelines: dict[tuple[tuple[str, str], ...], Pipeline] = {}
        for member in self.known():
            places = tuple((table.kind, table.connection) for table in member.spec.tables)
            pipelines.setdefault(places, self.open(member))
        for pipeline in pipelines.values():
            yield dict(pipeline.intermediate.catalog.spark_settings())
            yield from (dict(destination.spark_settings()) for destination in pipeline.destinations())


class _SharedTask(OneTask):
    """A member's task, run in one Spark job with those of other members."""

    def __init__(self, participant: Participant[Task, list[Any]]) -> None:
        self._participant = participant

    def __call__(self, spark: Callable[[], SparkSession], task: Task) -> list[Any]:
        del spark  # of the member alone
        return self._participant(task)

    def is_not_enough(self) -> None:
        self._participant.runs_alone()
