"""Which landed batches a destination table needs next, and whether they continue what it has. Pure decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from jobs.batch import CommittedState, LandedBatch
from resources.errors import ConfigurationError, LineageBroken


def choices(pipeline: str) -> str:
    """The remedies for a broken lineage."""
    return (
        "restore the intermediate table (roll it forward), or go on from the tables' own offsets, without the landed "
        f"batches that are missing: `batchmerge offsets reset {pipeline} --to committed`"
    )


# For each topic that was recreated the first batch of each later topic of that name.
RecreatedTopics = Mapping[str, Sequence[int]]


def recreated_topics(states: Iterable[CommittedState]) -> dict[str, list[int]]:
    """For each topic that was recreated the first batch of each later topic of that name.

    A record is identified by topic id, partition and offset. Rows contain only the topic's name, so their batch number
    determines which topic of that name they are from.

    Args:
        states: ascending.
    """
    ids: dict[str, str] = {}
    found: dict[str, list[int]] = {}
    for state in states:
        for topic, topic_id in state.topic_ids.items():
            if ids.setdefault(topic, topic_id) != topic_id:
                found.setdefault(topic, []).append(state.batch_number)
                ids[topic] = topic_id
    return found


def incarnation(topic: str, batch: int, recreated: RecreatedTopics) -> int:
    """The number, from 0, of the topic of this name that a record of this batch is from; SQL: `incarnation.sql.j2`."""
    return sum(batch >= first for first in recreated.get(topic, ()))


def bound_topics(recreated: RecreatedTopics) -> dict[str, str]:
    """The parameters of statements that distinguish topics of one name (``incarnation.sql.j2``)."""
    return {f"recreated_{number}": topic for number, topic in enumerate(recreated)}


def joined(one: RecreatedTopics, other: RecreatedTopics) -> dict[str, list[int]]:
    """The union of two sources about recreated topics."""
    return {topic: sorted({*one.get(topic, ()), *other.get(topic, ())}) for topic in sorted({*one, *other})}


def next_batches(
    table: str, committed: CommittedState | None, landed: Sequence[LandedBatch], oldest_complete: bool
) -> list[LandedBatch]:
    """The landed batches after the committed one, in order: what one merge applies.

    A merge is allowed only if the first of them continues the committed state (its previous commit id and start offsets
    equal the committed ones), and each other one continues the one before it.

    Args:
        landed: all landed batches that are still known, ascending.
        oldest_complete: whether `landed` begins with the pipeline's first batch.

    Raises:
        LineageBroken: the landed batches do not continue the committed state; its remedy names the choices.
    """
    _check_chain(table, landed)
    found = _after(table, committed, landed, oldest_complete)
    for before, after in pairwise(found):
        _check_starts(table, CommittedState.after(before), f"is where batch {before.number} ends", after)
    return found


def _after(
    table: str, committed: CommittedState | None, landed: Sequence[LandedBatch], oldest_complete: bool
) -> list[LandedBatch]:
    if committed is None:
        begun = [n for n, b in enumerate(landed) if b.batch.continues is not None and b.batch.follows(None)]
        # The table may begin with a reset, unless it can begin with the pipeline's first batch.
        if begun and not (oldest_complete and len({b.batch.meaning_hash for b in landed[: begun[-1] + 1]}) == 1):
            return list(landed[begun[-1] :])
        if landed and not oldest_complete:
            raise LineageBroken(
                f"the table has no batch yet, but landed batches before {landed[0].number} were removed by retention",
                where=table,
                remedy="begin the table with the next batch: `batchmerge offsets reset "
                f"{landed[0].batch.pipeline} --to committed`, then read what Kafka still has of earlier records: "
                f"`batchmerge replay {landed[0].batch.pipeline} --kafka-from`; or fill a new table by a pipeline of "
                "another name",
            )
        return list(landed)
    newer = [b for b in landed if b.number > committed.batch_number]
    _check_same(table, committed, landed)
    if newer and not newer[0].batch.follows(committed.commit_id):
        # A reset that continues the committed state skips the batches in between.
        resets = (n for n, b in enumerate(newer) if b.batch.continues and b.batch.follows(committed.commit_id))
        newer = newer[next(resets, 0) :]
    if newer:
        _check_continues(table, committed, newer[0])
    return newer


def next_stretch(batches: Sequence[LandedBatch]) -> list[LandedBatch]:
    """The batches that are merged together next: those before the first one that revises, or that one alone."""
    revising = [n for n, b in enumerate(batches) if b.batch.revises is not None]
    return list(batches[: max(revising[0], 1)] if revising else batches)


def _check_chain(table: str, landed: Sequence[LandedBatch]) -> None:
    for before, after in pairwise(landed):
        if not after.batch.follows(before.batch.commit_id):
            raise LineageBroken(
                f"landed {after.batch} does not follow landed {before.batch}",
                where=table,
                remedy=choices(after.batch.pipeline),
            )


def _check_same(table: str, committed: CommittedState, landed: Sequence[LandedBatch]) -> None:
    """Requires that the intermediate table has the committed batch with the same id, or that retention removed it."""
    if not landed or landed[-1].number < committed.batch_number:
        newest = f"ends at {landed[-1].batch}" if landed else "is empty"
        raise _broken(
            table,
            committed,
            f"batch {committed.batch_number} is committed here, but the intermediate table {newest}: it was rolled "
            "back or recreated",
        )
    for b in landed:
        if b.number == committed.batch_number and b.batch.commit_id != committed.commit_id:
            again = f"batch {b.number} was landed again as {b.batch.commit_id}, but {committed.commit_id} is committed"
            raise _broken(table, committed, again)


def _check_continues(table: str, committed: CommittedState, first: LandedBatch) -> None:
    follows = first.batch.follows(committed.commit_id)
    if not follows and first.number > committed.batch_number + 1:
        raise _broken(
            table,
            committed,
            f"batch {committed.batch_number} is committed, and the landed batches after it, up to {first.number - 1}, "
            "were removed by retention",
            first_landed=first.number,
        )
    if not follows:
        raise _broken(
            table,
            committed,
            f"landed {first.batch} follows {first.batch.previous_commit_id}, but {committed.commit_id} "
            f"(batch {committed.batch_number}) is committed",
            first_landed=first.number,
        )
    _check_starts(table, committed, "is committed", first)


def _check_starts(table: str, before: CommittedState, reached: str, after: LandedBatch) -> None:
    begins = after.batch.begins_after(before.commit_id)
    for tp, offset in before.offsets.items():
        if begins.get(tp, offset) != offset:
            elsewhere = f"landed {after.batch} starts at offset {begins[tp]} of {tp}, but {offset} {reached}"
            raise _broken(table, before, elsewhere, first_landed=after.number)


def _broken(table: str, committed: CommittedState, what: str, **facts: object) -> LineageBroken:
    remedy = choices(committed.pipeline)
    return LineageBroken(what, where=table, remedy=remedy, committed=committed.batch_number, **facts)


def of_one_meaning(batches: Sequence[LandedBatch]) -> list[LandedBatch]:
    """The last of these batches that were landed with the same `changes`; older ones may have another key."""
    others = [n for n, b in enumerate(batches) if b.batch.meaning_hash != batches[-1].batch.meaning_hash]
    return list(batches[others[-1] + 1 if others else 0 :])


def check_meaning(
    pipeline: str, meaning_hash: str, committed: CommittedState | None, batches: Sequence[LandedBatch]
) -> None:
    """Refuses to merge with other key columns, op mapping or order than before, so that they are not mixed silently.

    Args:
        meaning_hash: of the present pipeline file.
        batches: the batches to merge next; a reset at their beginning may have accepted the change.

    Raises:
        ConfigurationError: its remedy names the choices.
    """
    if batches and batches[0].batch.continues is not None and batches[0].batch.meaning_hash == meaning_hash:
        committed = None
    made_with = [*([committed.meaning_hash] if committed else []), *(b.batch.meaning_hash for b in batches)]
    if any(one != meaning_hash for one in made_with):
        raise ConfigurationError(
            "`changes` (key, op mapping or order) is not what the committed batches were made with",
            where=f"pipeline {pipeline}",
            remedy="take the change back; or accept it for what comes (existing rows stay as they are) with "
            f"`batchmerge offsets reset {pipeline} --to committed --accept-changes`; or start "
            "over: a pipeline of another name with tables of another name",
        )
