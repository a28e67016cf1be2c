"""Resets offsets: a person decides where a pipeline continues, after an error that only a person can resolve.

A reset is a batch that reads no records. Like every batch it has a number and an identity, is published in the
intermediate table by compare-and-set, and is applied by each table in one step with the table's state. It contains the
commit ids that it continues, each with its offsets, and the offsets after it. So the lineage can still be checked: a
table continues only from a state that was known when the reset was planned, and the batch has the old and the new
offsets.

A reset may continue several commit ids: tables may have batches that the intermediate table has lost (it was rolled
back or recreated), and each table continues from its own state.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from jobs.batch import Batch, CommittedState, Counts, LandedBatch, LandedBatches, new_commit_id
from jobs.destinations.base import oldest
from jobs.lineage import next_batches
from jobs.offsets import OffsetRange, Offsets, TopicPartition, total
from jobs.pipeline import Pipeline
from jobs.planning.highest_batch import highest_in
from jobs.planning.plan import TopicState
from jobs.watermark import Watermark
from resources.errors import BatchmergeError, ConfigurationError, LineageBroken


@dataclass(frozen=True)
class ResetState:
    """Everything that a reset is planned from.

    Attributes:
        current: the state of the intermediate table's head, also if rolled back; None if it has none.
        highest: the highest batch number that any table of the pipeline ever had.
        parts: the committed states of each table's parts, by the table's name.
        landed: the landed batches that are still known.
        begins: the first batch of each table that records have named; earlier batches do not concern it.
    """

    pipeline: str
    current: CommittedState | None
    highest: int
    parts: Mapping[str, Sequence[CommittedState | None]]
    landed: LandedBatches
    topics: TopicState
    begins: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def tables(self) -> dict[str, CommittedState | None]:
        """The committed state of each table by name: the oldest one of its parts."""
        return {name: oldest(states) for name, states in self.parts.items()}

    @property
    def states(self) -> list[CommittedState]:
        """All states that a reset may have to continue."""
        return [state for state in (self.current, *chain(*self.parts.values())) if state]

    def base(self, table: str | None = None) -> CommittedState:
        """The state whose offsets are kept unless a target changes them: of one table, or of all, if they agree.

        Args:
            table: its name as in `tables`; None: all.

        Raises:
            ConfigurationError: there is no state, or they do not agree.
        """
        if table is not None:
            if (state := self.tables[table]) is None:
                others = [repr(name) for name, known in self.tables.items() if known]
                raise ConfigurationError(
                    f"table {table} has no committed offsets",
                    where=f"pipeline {self.pipeline}",
                    remedy=f"name one of {', '.join(others)}" if others else "set `source.start`",
                )
            return state
        if self.current and self.current.batch_number == self.highest:
            return self.current
        states = {s.commit_id: s for s in self.states}
        newest = {c: s for c, s in states.items() if not _is_landed(s, self.landed.batches)} or states
        if len(newest) != 1:
            raise ConfigurationError(
                "the tables are at different batches that are no longer landed, so it is not clear where to continue"
                if newest
                else "nothing is committed yet, so there are no offsets to reset",
                where=f"pipeline {self.pipeline}",
                remedy="name the table from whose offsets to continue with `--table`; other tables may then skip "
                "records or read some again"
                if newest
                else "set `source.start`",
            )
        return next(iter(newest.values()))


@dataclass(frozen=True)
class Impact:
    """The effect of a reset on one table: the numbers of offsets that it skips, and that it gets twice."""

    table: str
    skipped: int
    repeated: int


def read_state(pipeline: Pipeline, topics: TopicState | None = None) -> ResetState:
    """Reads the state of the intermediate table, the tables and the topics.

    Args:
        topics: what Kafka has for the pipeline's topics; None: ask for it.

    Raises:
        BatchmergeError: a table cannot be read, or was replaced; its own remedy comes first.
    """
    current, highest = pipeline.intermediate.current_state()
    destinations = pipeline.destinations()
    for destination in destinations:
        destination.settle()
    parts = {d.name: [part.committed() for part in d.parts()] for d in destinations}
    landed = pipeline.intermediate.landed()
    highest = max([highest, *(highest_in(d, parts[d.name]) for d in destinations)])
    return ResetState(
        pipeline.name, current, highest, parts, landed, topics or pipeline.topic_state(),
        {d.name: d.table.named.first for d in destinations if d.table.named},
    )  # fmt: skip


def plan_reset(
    known: ResetState, base: CommittedState, targets: Offsets, dropped: Collection[TopicPartition], meaning_hash: str
) -> Batch:
    """The batch that moves the offsets of `base` to these targets and keeps all others. Pure except for its identity.

    Args:
        dropped: topic-partitions to remove from the state.
        meaning_hash: of the batches after it; if it is not the base's, the reset accepts a change of meaning.

    Raises:
        ConfigurationError: a target that Kafka does not have, or only some partitions of a recreated topic.
    """
    _check_targets(known, targets)
    after = {tp: o for tp, o in base.offsets.items() if tp not in dropped} | dict(targets)
    ids = dict(base.topic_ids) | {tp.topic: known.topics.topic_ids[tp.topic] for tp in targets}
    _check_whole_topics(base, after, targets, ids)
    if meaning_hash != base.meaning_hash:
        _check_all_merged(known, base)
    # An offset that stays keeps the epoch in which it was committed: its log may have been cut off since then.
    seen = {tp: known.topics if tp in targets else base for tp in after}
    continues: dict[str, Offsets] = {s.commit_id: s.offsets for s in known.states}
    if any(state is None and _begins_with_reset(known, name, meaning_hash) for name, state in known.tables.items()):
        continues[""] = {}
    # Tables that were taken over and have not merged that yet may begin with this reset.
    taken_over = {name for landed in known.landed.batches for name in landed.batch.untraced}
    return Batch(
        pipeline=known.pipeline,
        number=known.highest + 1,
        commit_id=new_commit_id(),
        previous_commit_id=base.commit_id,
        ranges={tp: OffsetRange(o, o) for tp, o in sorted(after.items())},
        topic_ids=dict(sorted(ids.items())),
        planned_at=int(time.time() * 1000),
        meaning_hash=meaning_hash,
        continues=continues,
        leader_epochs={tp: at.leader_epochs[tp] for tp, at in seen.items() if tp in at.leader_epochs},
        untraced=tuple(sorted(name for name in taken_over if known.tables.get(name) is None)),
    )


def commit(pipeline: Pipeline, known: ResetState, base: CommittedState, batch: Batch) -> None:
    """Publishes the reset; the tables follow with their next merge.

    Raises:
        CommitFailed: another run has landed since `read_state`.
    """
    pipeline.intermediate.reset(batch, known.current, _watermark(base, batch), pipeline.run_properties)


def state_after(base: CommittedState, batch: Batch) -> CommittedState:
    return CommittedState.after(LandedBatch(batch, Counts(), _watermark(base, batch), 0))


def impact(known: ResetState, batch: Batch) -> list[Impact]:
    """For each table the offsets that it skips and gets twice, counted from its offsets when it applies the reset."""
    assert batch.continues is not None
    found = []
    for name, state in known.tables.items():
        if state is None and _begins_with_reset(known, name, batch.meaning_hash):
            left_out = _for_a_new_table(known, name) or known.landed.batches
            found.append(Impact(name, sum(total(b.batch.ranges) for b in left_out), 0))
            continue
        moved = [_moved(known, part, batch) for part in known.parts[name]]
        found.append(Impact(name, *map(max, zip(*moved, strict=True))))
    return found


def _moved(known: ResetState, state: CommittedState | None, batch: Batch) -> tuple[int, int]:
    """The numbers of offsets that a table, or a part of one, at this state skips, and that it gets twice."""
    merges_landed_first = state is None or _is_landed(state, known.landed.batches)
    before = known.current if known.current and merges_landed_first else state
    skipped = repeated = 0
    for tp, r in batch.ranges.items():
        at = before.offsets.get(tp) if before else None
        if at is None or (before and before.topic_ids.get(tp.topic) != batch.topic_ids.get(tp.topic)):
            continue
        skipped, repeated = skipped + max(0, r.end - at), repeated + max(0, at - r.end)
    return skipped, repeated


def validate(pipeline: Pipeline, known: ResetState, after: CommittedState) -> BatchmergeError | None:
    """The error with which the next run would fail even after the reset; None if it would not."""
    try:
        pipeline.plan_batch(after, known.topics)
    except BatchmergeError as problem:
        return problem
    return None


def _begins_with_reset(known: ResetState, table: str, meaning_hash: str) -> bool:
    """Whether a table without a batch begins with the reset; otherwise it first gets the earlier batches."""
    beginning = _for_a_new_table(known, table)
    return not beginning or any(b.batch.meaning_hash != meaning_hash for b in beginning)


def _for_a_new_table(known: ResetState, table: str) -> list[LandedBatch]:
    """The landed batches that this table without a batch would get without the reset; none if it cannot begin there."""
    landed = known.landed.since(known.begins[table]) if table in known.begins else known.landed
    try:
        return next_batches(table, None, landed.batches, landed.complete)
    except LineageBroken:
        return []


def _is_landed(state: CommittedState, landed: Sequence[LandedBatch]) -> bool:
    return any(b.batch.commit_id == state.commit_id for b in landed)


def _watermark(base: CommittedState, batch: Batch) -> Watermark:
    """The watermark after the reset. Record times of a recreated topic start over. Truncations remain effective, also
    in replays, unless `changes` was changed, since then `order_by` may be another column."""
    same = {t for t, topic_id in batch.topic_ids.items() if base.topic_ids.get(t) == topic_id}
    times = {tp: base.watermark.record_times.get(tp) if tp.topic in same else None for tp in batch.ranges}
    below = base.watermark.truncated_below if batch.meaning_hash == base.meaning_hash else None
    return replace(base.watermark, record_times=times, truncated_below=below)


def _check_targets(known: ResetState, targets: Offsets) -> None:
    for tp, offset in sorted(targets.items()):
        if tp not in known.topics.stable:
            raise ConfigurationError(
                "Kafka does not have this partition, or its topic is not a source of the pipeline",
                where=str(tp),
                remedy="name a topic of `source`",
            )
        first, stable = known.topics.first[tp], known.topics.stable[tp]
        if not first <= offset <= stable:
            raise ConfigurationError(
                f"offset {offset} is wanted, but Kafka has only {first} to {stable}",
                where=str(tp),
                remedy="name an offset that Kafka has",
            )


def _check_whole_topics(base: CommittedState, after: Offsets, targets: Offsets, ids: Mapping[str, str]) -> None:
    """Requires that offsets of a recreated topic are not mixed with those of its predecessor."""
    for tp in after:
        renewed = tp.topic in base.topic_ids and ids[tp.topic] != base.topic_ids[tp.topic]
        if renewed and tp not in targets:
            raise ConfigurationError(
                f"the topic was recreated, so all its partitions have to be reset, {tp} too",
                where=f"topic {tp.topic}",
                remedy="use `offsets reset --topic`, or name every partition",
            )


def _check_all_merged(known: ResetState, base: CommittedState) -> None:
    """Requires that batches that were landed with the old meaning are merged: they have to be merged with it."""
    behind = [n for n, s in known.tables.items() if s and s.commit_id != base.commit_id]
    if behind or (known.current and known.current.commit_id != base.commit_id):
        raise ConfigurationError(
            f"{', '.join(behind) or 'the intermediate table'} has not merged everything that was landed with the old "
            "`changes`",
            where=f"pipeline {known.pipeline}",
            remedy="take the change back, run the pipeline until all tables have caught up, then make the change again",
        )
