"""Resetting offsets: a person decides where a pipeline goes on, after an error that left the choice to one.

A reset is a batch like any other, only that it reads no records: it has a number and an identity, is published in the
intermediate table by compare-and-set, and every table applies it in its turn, in one step with its state. It names the
commit ids that it continues, each with its offsets, and the offsets after it. So the lineage stays provable: a table
goes on only from a state that was known when the reset was decided, and everybody can read that offsets were moved,
from where, and to where.

Several commit ids can be continued, because the intermediate table may have lost batches (rolled back, recreated) that
tables have: each table goes on from its own state.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from jobs.batch import Batch, CommittedState, LandedBatch, new_commit_id
from jobs.offsets import OffsetRange, Offsets, TopicPartition, ends
from jobs.pipeline import Pipeline
from jobs.plan import TopicState
from jobs.watermark import Watermark
from resources.errors import BatchmergeError, ConfigurationError


@dataclass(frozen=True)
class Known:
    """Everything that a reset is decided from.

    Attributes:
        standing: the state that the intermediate table stands at, be it by a rollback; None where it has none.
        highest: the highest batch number that any table of the pipeline ever had.
        tables: the committed state of each table by its name.
        landed: the landed batches that are still known.
    """

    pipeline: str
    standing: CommittedState | None
    highest: int
    tables: Mapping[str, CommittedState | None]
    landed: Sequence[LandedBatch]
    complete: bool
    topics: TopicState

    def base(self, table: str | None = None) -> CommittedState:
        """The state whose offsets stay where nothing else is said: of one table, or of all, if they agree.

        Raises:
            ConfigurationError: there is none, or they do not agree.
        """
        if table is not None:
            named = [state for name, state in self.tables.items() if table in (name, name.split(" ")[-1])]
            if len(named) != 1 or named[0] is None:
                raise ConfigurationError(
                    f"{table} is {'more than one' if len(named) > 1 else 'no'} table with committed offsets",
                    remedy=f"name one of {', '.join(repr(name) for name in self.tables)}",
                )
            return named[0]
        if self.standing and self.standing.batch_number == self.highest:
            return self.standing
        states = {s.commit_id: s for s in [self.standing, *self.tables.values()] if s}
        newest = {c: s for c, s in states.items() if not _is_landed(s, self.landed)} or states
        if len(newest) != 1:
            raise ConfigurationError(
                "the tables stand at different batches that are not landed any more, so it is open where to go on"
                if newest
                else "nothing is committed yet, so there are no offsets to reset",
                where=f"pipeline {self.pipeline}",
                remedy="name the table whose offsets to go on from with `--table`; other tables may then skip "
                "records or read some again"
                if newest
                else "set `source.start`",
            )
        return next(iter(newest.values()))


@dataclass(frozen=True)
class Effect:
    """What a reset means for one table: offsets that it will never see, and offsets that it will get again."""

    table: str
    skipped: int
    again: int


def look(pipeline: Pipeline) -> Known:
    """Reads where everything stands.

    Raises:
        BatchmergeError: a table cannot be asked, or was replaced; its own remedy comes first.
    """
    standing, highest = pipeline.intermediate.current_state()
    tables = {d.name: d.committed() for d in pipeline.destinations()}
    landed, complete = pipeline.intermediate.landed()
    numbers = [highest, *(s.batch_number for s in tables.values() if s)]
    return Known(pipeline.name, standing, max(numbers), tables, landed, complete, pipeline.topic_state())


def decide(
    known: Known, base: CommittedState, targets: Offsets, dropped: Collection[TopicPartition], spec_hash: str
) -> Batch:
    """The batch that moves the offsets of `base` to these targets; all others stay. Pure but for its identity.

    Args:
        dropped: topic-partitions that are no longer to be known.
        spec_hash: what the batches after it are made with; another than the base's accepts a change of meaning.

    Raises:
        ConfigurationError: a target that Kafka does not have, or half of a recreated topic.
    """
    _check_targets(known, targets)
    after = {tp: o for tp, o in base.offsets.items() if tp not in dropped} | dict(targets)
    ids = dict(base.topic_ids) | {tp.topic: known.topics.topic_ids[tp.topic] for tp in targets}
    _check_whole_topics(base, after, targets, ids)
    if spec_hash != base.spec_hash:
        _check_all_merged(known, base)
    states = [known.standing, *known.tables.values()]
    continues: dict[str, Offsets] = {s.commit_id: s.offsets for s in states if s}
    whole = known.complete and bool(known.landed)
    cannot_begin = not whole or any(b.batch.spec_hash != spec_hash for b in known.landed)
    if None in known.tables.values() and cannot_begin:
        continues[""] = {}
    return Batch(
        pipeline=known.pipeline,
        number=known.highest + 1,
        commit_id=new_commit_id(),
        previous_commit_id=base.commit_id,
        ranges={tp: OffsetRange(o, o) for tp, o in sorted(after.items())},
        topic_ids={topic: ids[topic] for topic in sorted({tp.topic for tp in after}) if topic in ids},
        planned_at=int(time.time() * 1000),
        spec_hash=spec_hash,
        continues=continues,
    )


def commit(pipeline: Pipeline, known: Known, base: CommittedState, batch: Batch) -> None:
    """Publishes the reset; the tables follow with their next merge.

    Raises:
        CommitFailed: another run has landed since `look`.
    """
    pipeline.intermediate.reset(batch, known.standing, _watermark(base, batch), pipeline.run_properties)


def state_after(base: CommittedState, batch: Batch) -> CommittedState:
    return CommittedState(
        batch.pipeline, batch.number, batch.commit_id, ends(batch.ranges), batch.topic_ids, batch.spec_hash,
        _watermark(base, batch),
    )  # fmt: skip


def effects(known: Known, batch: Batch) -> list[Effect]:
    """Per table what it skips and gets again, counted from where it is before the reset reaches it."""
    assert batch.continues is not None
    found = []
    for name, state in known.tables.items():
        merges_landed_first = state is not None and known.standing is not None and _is_landed(state, known.landed)
        before = known.standing if merges_landed_first else state
        skipped = again = 0
        for tp, r in batch.ranges.items():
            at = before.offsets.get(tp) if before else None
            if at is None or (before and before.topic_ids.get(tp.topic) != batch.topic_ids.get(tp.topic)):
                continue
            skipped, again = skipped + max(0, r.end - at), again + max(0, at - r.end)
        found.append(Effect(name, skipped, again))
    return found


def still_fails(pipeline: Pipeline, known: Known, after: CommittedState) -> BatchmergeError | None:
    """Why the next run would fail even after the reset; None where it would not."""
    try:
        pipeline.plan_batch(after, known.topics)
    except BatchmergeError as problem:
        return problem
    return None


def _is_landed(state: CommittedState, landed: Sequence[LandedBatch]) -> bool:
    return any(b.batch.commit_id == state.commit_id for b in landed)


def _watermark(base: CommittedState, batch: Batch) -> Watermark:
    """Times of a topic that was recreated are those of another topic."""
    same = {t for t, topic_id in batch.topic_ids.items() if base.topic_ids.get(t) == topic_id}
    times = {tp: base.watermark.record_times.get(tp) if tp.topic in same else None for tp in batch.ranges}
    return Watermark(times, base.watermark.caught_up_through)


def _check_targets(known: Known, targets: Offsets) -> None:
    for tp, offset in sorted(targets.items()):
        if tp not in known.topics.stable:
            raise ConfigurationError(
                "Kafka does not have it, or it is no source of the pipeline",
                where=f"topic {tp.topic}, partition {tp.partition}",
                remedy="name a topic of `source`",
            )
        first, stable = known.topics.first[tp], known.topics.stable[tp]
        if not first <= offset <= stable:
            raise ConfigurationError(
                f"offset {offset} is wanted, but Kafka has only {first} to {stable}",
                where=f"topic {tp.topic}, partition {tp.partition}",
                remedy="name an offset that Kafka has",
            )


def _check_whole_topics(base: CommittedState, after: Offsets, targets: Offsets, ids: Mapping[str, str]) -> None:
    """Offsets of a topic and of the one of that name before it must not be mixed."""
    for tp in after:
        renewed = tp.topic in base.topic_ids and ids[tp.topic] != base.topic_ids[tp.topic]
        if renewed and tp not in targets:
            raise ConfigurationError(
                f"the topic was recreated, so all its partitions have to be reset, {tp} too",
                where=f"topic {tp.topic}",
                remedy="use `offsets reset --topic`, or name every partition",
            )


def _check_all_merged(known: Known, base: CommittedState) -> None:
    """What was landed with the old meaning has to be merged with it."""
    behind = [n for n, s in known.tables.items() if s and s.commit_id != base.commit_id]
    if behind or (known.standing and known.standing.commit_id != base.commit_id):
        raise ConfigurationError(
            f"{', '.join(behind) or 'the intermediate table'} has not merged everything that was landed with the old "
            "`changes`",
            where=f"pipeline {known.pipeline}",
            remedy="take the change back, run the pipeline until all tables have caught up, then make the change again",
        )
