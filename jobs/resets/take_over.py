"""A pipeline takes over the tables of another one, which is gone or was renamed, and continues where that ended.

It begins with a batch that reads no records and moves the offsets there, like any reset (`jobs.resets.offset_reset`);
then each table is handed over (`Destination.hand_over`). Repeating the command completes one that died in between. With
`source.for_each` each topic's tables are taken over in this way, from the other pipeline's member for the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TypeVar

from jobs.batch import Batch, CommittedState
from jobs.destinations.base import Destination
from jobs.destinations.requirements import require_nothing_begun
from jobs.failpoints import failpoint
from jobs.members.members import Members
from jobs.members.side_by_side import Outcome
from jobs.pipeline import Pipeline
from jobs.planning.plan import TopicState
from jobs.resets import offset_reset
from jobs.resets.offset_reset import ResetState
from jobs.spec.members import member_name
from resources.errors import ConfigurationError

T = TypeVar("T")


@dataclass(frozen=True)
class TakeOver:
    """A planned take-over.

    Attributes:
        other: the pipeline that has written the tables so far.
        tables: that pipeline's tables.
        known: what the reset is planned from.
        base: the tables' common state; None if the other pipeline has no batch.
        batch: the reset; None if it is not needed, or already published.
    """

    other: str
    tables: Sequence[Destination]
    known: ResetState
    base: CommittedState | None = None
    batch: Batch | None = None

    def carry_out(self, pipeline: Pipeline) -> list[str]:
        """Hands the tables over; returns their names.

        Raises:
            CommitFailed: a run of one of the pipelines has committed meanwhile.
        """
        if self.base and self.batch:
            offset_reset.commit(pipeline, self.known, self.base, self.batch)
            failpoint("take-over.landed")
        names = []
        for table in self.tables:
            if table.hand_over(pipeline.name, self.base):
                failpoint("take-over.table")
                names.append(table.name)
        return names


def plan_take_over(pipeline: Pipeline, other: str, topics: TopicState | None = None) -> TakeOver:
    """Plans to take over the other pipeline's tables.

    Args:
        topics: what Kafka has for the pipeline's topics; None: ask for it.

    Raises:
        ConfigurationError: this pipeline cannot continue them.
    """
    where = f"pipeline {pipeline.name}"
    if other == pipeline.name:
        raise ConfigurationError(
            f"pipeline {other} cannot take over its own tables", where=where, remedy="name the other pipeline"
        )
    before = pipeline.named(other)
    pipeline.take_columns(before)
    tables = _settled_tables(before)
    states = {table.name: table.states() for table in tables}
    known = offset_reset.read_state(pipeline, topics)
    base = _common_state(states, other, where)
    if base is None:
        if known.current is None:
            _require_written(before)
        return TakeOver(other, tables, known)
    if base.meaning_hash != pipeline.spec.meaning_hash:
        raise ConfigurationError(
            f"`changes` (key, op mapping or order) is not what pipeline {other} had",
            where=where,
            remedy="write `changes` as it was; you can change it after the take-over",
        )
    resets = list(takewhile(lambda landed: landed.batch.continues is not None, known.landed.batches))
    if resets and resets[-1].batch.previous_commit_id == base.commit_id:
        # A command that stopped has published the reset: what is left begins with it, and gets what was landed since.
        return TakeOver(other, tables, known, base)
    # The old pipeline may have committed since such a reset: if no table begins there yet, another reset moves it.
    nothing_taken = 0 < len(resets) == len(known.landed.batches) and not any(None in found for found in states.values())
    if any(known.tables.values()) or (known.current and not nothing_taken):
        raise ConfigurationError(
            f"pipeline {pipeline.name} has batches of its own, and cannot continue where pipeline {other} ended",
            where=where,
            remedy="take the tables over with a pipeline of a new name, which has not run yet",
        )
    known = replace(known, highest=max(known.highest, base.batch_number))
    gone = [tp for tp in base.offsets if tp not in known.topics.stable]
    untraced = [name for name, found in states.items() if any(state and state.untraced_to for state in found)]
    reset = offset_reset.plan_reset(known, base, {}, gone, base.meaning_hash)
    return TakeOver(other, tables, known, base, replace(reset, untraced=untraced))


def _settled_tables(before: Pipeline) -> Sequence[Destination]:
    """The pipeline's tables, in none of which a batch is begun: it cannot complete one in only some of them."""
    tables = before.destinations()
    for table in tables:
        table.settle()
    for table in tables:
        for lease in table.leases():
            require_nothing_begun(lease.batch, before.name, f"{table.name} on {lease.endpoint}")
    return tables


def _common_state(
    states: Mapping[str, Sequence[CommittedState | None]], other: str, where: str
) -> CommittedState | None:
    """The one state of all tables; None if no table has a batch.

    Args:
        states: of the parts of each table, by its name.

    Raises:
        ConfigurationError: they are at several batches.
    """
    newest = {state.commit_id: state for found in states.values() for state in found if state}
    if len(newest) > 1:
        at = ", ".join(
            f"{name} at batch {state.batch_number}" for name, found in states.items() for state in found if state
        )
        raise ConfigurationError(
            f"the tables of pipeline {other} are not at the same batch: {at}",
            where=where,
            remedy=f"run pipeline {other} until they are, then take them over",
        )
    return next(iter(newest.values()), None)


def _require_written(before: Pipeline) -> None:
    """Requires that a pipeline that took tables over has written them since: before that they have no state of it.

    Raises:
        ConfigurationError: it has not.
    """
    landed = before.intermediate.landed().batches
    if landed and landed[0].batch.previous_commit_id:
        raise ConfigurationError(
            f"pipeline {before.name} has taken these tables over, and has not written them since",
            where=f"pipeline {before.name}",
            remedy=f"run pipeline {before.name} once, then take its tables over",
        )


def plan_each(members: Members, other: str) -> list[Outcome[TakeOver]]:
    """The plan of every topic, or why it has none. Raises BatchmergeError if Kafka does not answer."""
    return _each(members, other, plan_take_over)


def carry_out_each(members: Members, other: str) -> list[Outcome[list[str]]]:
    """Takes over the tables of each topic independently, several side by side; repeating it completes one that died."""
    return _each(members, other, lambda pipeline, *given: plan_take_over(pipeline, *given).carry_out(pipeline))


def _each(members: Members, other: str, work: Callable[[Pipeline, str, TopicState | None], T]) -> list[Outcome[T]]:
    seen = members.look()
    failed = [Outcome[T](topic, problem=problem) for topic, problem in seen.failed.items()]
    topics = {member.name: member.key for member in seen.members}

    def one(pipeline: Pipeline, state: TopicState | None) -> T:
        return work(pipeline, member_name(other, topics[pipeline.name]), state)

    return [*members.each_seen("take-over", seen, one), *failed]
