"""Plans the next batch: a pure decision from the committed state and Kafka's offsets (step 1 of `jobs/protocol.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jobs.batch import Batch, CommittedState, new_commit_id
from jobs.offsets import OffsetRange, Offsets, Ranges, TopicPartition
from resources.errors import LineageBroken, OffsetsGone, SourceError, TopicRecreated


@dataclass(frozen=True)
class TopicState:
    """What Kafka has: the first and the last stable offset of each topic-partition, and each topic's id.

    Attributes:
        first: where nothing is to be read, perhaps the last stable offset (`jobs.planning.topic_state`).
        leader_epochs: the leader epoch of each topic-partition; empty if the brokers do not report it.
        asked_at: when Kafka was asked, in milliseconds since the epoch. What came later is not in `stable`.
    """

    first: Offsets
    stable: Offsets
    topic_ids: Mapping[str, str]
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    asked_at: int = field(default=0, compare=False)

    def by_topic(self) -> dict[str, TopicState]:
        """The state of each topic."""
        first, stable, epochs = (_by_topic(one) for one in (self.first, self.stable, self.leader_epochs))
        return {
            topic: TopicState(
                first.get(topic, {}), stable.get(topic, {}), {topic: topic_id}, epochs.get(topic, {}), self.asked_at
            )
            for topic, topic_id in self.topic_ids.items()
        }

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted(self.stable)

    def is_as_new_as(self, committed: CommittedState) -> bool:
        """Whether Kafka may have been asked after this state was committed. If not, another run has landed since, or
        has reset offsets to before those that Kafka was asked for."""
        same_topics = all(committed.topic_ids.get(topic, found) == found for topic, found in self.topic_ids.items())
        return same_topics and all(
            self.first.get(tp, 0) <= offset <= self.stable.get(tp, -1) for tp, offset in committed.offsets.items()
        )


@dataclass(frozen=True)
class Planned:
    """The next batch and what it was planned from; `batch` is None where there is nothing new."""

    batch: Batch | None
    committed: CommittedState | None
    topics: TopicState


def _by_topic(values: Offsets) -> dict[str, dict[TopicPartition, int]]:
    found: dict[str, dict[TopicPartition, int]] = {}
    for tp, value in values.items():
        found.setdefault(tp.topic, {})[tp] = value
    return found


def plan_batch(
    pipeline: str,
    meaning_hash: str,
    committed: CommittedState | None,
    highest_known: int,
    topics: TopicState,
    start: Callable[[list[TopicPartition]], Offsets],
    max_records: int,
    now: int,
    key_must_stay: bool = False,
    pin_start: bool = False,
) -> Batch | None:
    """The next batch; None if there is nothing new.

    Args:
        committed: the intermediate table's committed state; None for a new pipeline.
        highest_known: the highest batch number that any table of the pipeline has (0 for none).
        start: returns the first offsets of partitions that were never read.
        max_records: upper bound of offsets in the batch, divided among the partitions.
        key_must_stay: the order of a key's changes depends on the key's partition, so that a topic with new partitions
            must be refused.
        pin_start: `start` depends on the time (`latest`): then the first batch is made even if it is empty, so that the
            next plan does not miss records that arrive after this time.

    Raises:
        OffsetsGone, TopicRecreated: the wanted start is no longer in Kafka.
        SourceError: partitions were added to the topic of a table that needs keys to stay in their partition.
    """
    wanted = _wanted(committed, topics, start, key_must_stay)
    _check_topic_ids(committed, topics)
    _check_available(wanted, topics, committed)
    backlog = {tp: OffsetRange(begin, max(begin, topics.stable[tp])) for tp, begin in wanted.items()}
    ranges = bound(backlog, max_records)
    if not any(len(r) for r in ranges.values()) and (committed or not pin_start):
        return None
    if committed and highest_known < committed.batch_number:
        raise LineageBroken(f"batch {committed.batch_number} is landed, yet {highest_known} is the highest known")
    return Batch(
        pipeline=pipeline,
        number=1 + highest_known,
        commit_id=new_commit_id(),
        previous_commit_id=committed.commit_id if committed else None,
        ranges=ranges,
        # Also of topics that were forgotten: one that comes back is then known as the same, or as another one.
        topic_ids={**(committed.topic_ids if committed else {}), **topics.topic_ids},
        planned_at=now,
        meaning_hash=meaning_hash,
        leader_epochs={tp: epoch for tp, epoch in topics.leader_epochs.items() if tp in ranges},
    )


def partitions_with_new_leader(
    committed: CommittedState | None, topics: TopicState
) -> dict[TopicPartition, tuple[int, int]]:
    """Committed offset and leader epoch of partitions with a new leader, which may have truncated the log.

    A leader that lacks the newest records (an unclean election) truncates them, and other records get their offsets.
    Once the log is longer again, the offsets alone do not show that.
    """
    if committed is None or not committed.leader_epochs:
        return {}
    return {
        tp: (committed.offsets[tp], epoch)
        for tp, epoch in committed.leader_epochs.items()
        if topics.leader_epochs.get(tp, epoch) != epoch
        and topics.topic_ids.get(tp.topic) == committed.topic_ids.get(tp.topic)
        and topics.first[tp] <= committed.offsets[tp] <= topics.stable[tp]
    }


def refuse_cut_off(committed: CommittedState, ends: Mapping[TopicPartition, int | None]) -> None:
    """Refuses to plan if a new leader has truncated the log below a committed offset.

    Args:
        ends: for each truncated partition the offset at which it was truncated; None if Kafka does not report it.

    Raises:
        OffsetsGone: a log was truncated.
    """
    for tp, end in sorted(ends.items(), key=str):
        at, again = (f"offset {end}", str(end)) if end is not None else ("an earlier offset", "OFFSET")
        raise OffsetsGone(
            f"offset {committed.offsets[tp]} is committed, but Kafka has lost records before it: a new leader has cut "
            f"the log off at {at}, and other records stand there now",
            where=str(tp),
            remedy=f"to read those too: `batchmerge offsets set {committed.pipeline} {tp}={again}`"
            "; the rows of the records that Kafka has lost stay in the tables",
            topic=tp.topic,
            partition=tp.partition,
            wanted=committed.offsets[tp],
            end=end,
        )


def refuse_other_topics(batch: Batch, topic_ids: Mapping[str, str]) -> None:
    """Requires, after a batch's ranges were read and before they are published, that its topics are the planned ones.

    Args:
        topic_ids: Kafka's ids after reading.

    Raises:
        TopicRecreated: a topic was deleted and created again since the plan.
    """
    for topic in sorted({tp.topic for tp, r in batch.ranges.items() if len(r)}):
        planned, found = batch.topic_ids.get(topic), topic_ids.get(topic)
        if planned is not None and found != planned:
            raise TopicRecreated(
                f"the topic was recreated while {batch} was read: its id is {found}, planned was {planned}. Nothing of "
                "it is kept",
                where=f"topic {topic}",
                remedy="run again: the next error names the ways to go on with the new topic",
                topic=topic,
            )


def bound(backlog: Ranges, max_records: int) -> dict[TopicPartition, OffsetRange]:
    """Cuts a backlog to `max_records` offsets: one for every partition that has any, the rest in proportion.

    So a busy partition cannot starve a quiet one, unless there are more partitions than `max_records`: then the largest
    come first. The remainder of rounding goes to the largest.
    """
    total = sum(len(r) for r in backlog.values())
    if total <= max_records:
        return dict(backlog)
    by_size = sorted((tp for tp, r in backlog.items() if len(r)), key=lambda tp: (-len(backlog[tp]), tp))
    shares = dict.fromkeys(backlog, 0) | dict.fromkeys(by_size[:max_records], 1)
    if spare := max(0, max_records - len(by_size)):
        for tp in by_size:
            shares[tp] += (len(backlog[tp]) - 1) * spare // (total - len(by_size))
    left = max_records - sum(shares.values())
    for tp in by_size:
        if left and shares[tp] < len(backlog[tp]):
            shares[tp], left = shares[tp] + 1, left - 1
    return {tp: OffsetRange(r.start, r.start + shares[tp]) for tp, r in backlog.items()}


def _wanted(
    committed: CommittedState | None,
    topics: TopicState,
    start: Callable[[list[TopicPartition]], Offsets],
    key_must_stay: bool,
) -> Offsets:
    known = dict(committed.offsets.items()) if committed else {}
    new = [tp for tp in topics.partitions if tp not in known]
    missing = sorted(tp for tp in known if tp not in topics.stable)
    if missing:
        raise TopicRecreated(
            f"committed, but no longer in Kafka or no longer named as a source: {', '.join(map(str, missing[:5]))}",
            where=f"topic {missing[0].topic}",
            remedy="restore the topic (in Kafka, or in `source`), or take it out of `source` and forget its offsets: "
            + (_reset(committed, missing[0].topic) if committed else ""),
            partitions=[str(tp) for tp in missing],
        )
    read_before = {tp.topic for tp in known}
    grown = [tp for tp in new if tp.topic in read_before]
    if committed and grown and key_must_stay:
        raise SourceError(
            f"partitions were added ({', '.join(map(str, grown[:5]))}), so a key may have moved to another partition "
            "and the order of its changes is no longer that of the batches",
            where=f"topic {grown[0].topic}",
            remedy="name a column that orders the changes in `changes.order_by` (upsert tables of some systems then "
            "have to be new ones), or state that keys did not move with `changes.order_by: arrival`; then accept that: "
            f"`batchmerge offsets reset {committed.pipeline} --to committed --accept-changes --yes`",
            partitions=[str(tp) for tp in grown],
        )
    # What appears later is read from its first record, whatever `start` says. Of a topic that was read before, that is
    # offset 0, even if retention was faster.
    appeared = {tp: 0 if tp.topic in read_before else topics.first[tp] for tp in new} if committed else start(new)
    return {**known, **appeared}


def _check_topic_ids(committed: CommittedState | None, topics: TopicState) -> None:
    if committed is None:
        return
    for topic, committed_id in committed.topic_ids.items():
        found = topics.topic_ids.get(topic)
        if found is not None and found != committed_id:
            raise TopicRecreated(
                f"the topic was recreated: its id is {found}, the committed one is {committed_id}",
                where=f"topic {topic}",
                remedy=f"to go on with the new topic from its first record: {_reset(committed, topic)}",
                topic=topic,
            )


def _check_available(wanted: Offsets, topics: TopicState, committed: CommittedState | None) -> None:
    for tp in sorted(wanted):
        first, stable = topics.first[tp], topics.stable[tp]
        if first <= wanted[tp] <= stable:
            continue
        where = str(tp)
        facts = {"topic": tp.topic, "partition": tp.partition, "wanted": wanted[tp], "first": first, "end": stable}
        reset = _reset(committed, tp.topic) if committed else ""
        if wanted[tp] < first:
            raise OffsetsGone(
                f"offset {wanted[tp]} is wanted, but Kafka has only {first} to {stable} (retention deleted the rest)",
                where=where,
                remedy=_skip(committed, wanted, topics) if committed else "start the pipeline at `earliest`",
                **facts,
            )
        raise TopicRecreated(
            f"offset {wanted[tp]} is committed, but the topic ends at {stable}: it was recreated or is another "
            "cluster's"
            if committed
            else f"offset {wanted[tp]} is wanted, but the topic ends at {stable}",
            where=where,
            remedy="check the connection"
            + (f"; to go on with this topic from its first record: {reset}" if committed else ""),
            **facts,
        )


def _skip(committed: CommittedState, wanted: Offsets, topics: TopicState) -> str:
    lost = {tp: topics.first[tp] for tp in sorted(wanted) if wanted[tp] < topics.first[tp]}
    places = " ".join(f"{tp}={first}" for tp, first in lost.items())
    # Where a partition of the topic has lost nothing, a reset would read again what was landed of it.
    whole = [topic for topic in {tp.topic for tp in lost} if all(tp in lost for tp in wanted if tp.topic == topic)]
    at_once = "".join(f", or all of {topic} with {_reset(committed, topic)}" for topic in sorted(whole))
    return f"skip what is lost: `batchmerge offsets set {committed.pipeline} {places}`{at_once}"


def _reset(committed: CommittedState, topic: str) -> str:
    return f"`batchmerge offsets reset {committed.pipeline} --topic {topic} --to earliest`"
