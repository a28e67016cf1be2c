"""Replay from Kafka: records that are still there and were merged long ago, with another transform, or never.

Never, because the pipeline began after them, or offsets were reset beyond them. They are read again, up to the offsets
that the table has committed, which do not move. A row that is the newest of its key in all of that is the newest that
there is: so an upsert table becomes what it would be if the pipeline had begun there, and a row that is newer, or a
delete, stays. A table of mode append gets the rows whose coordinates it lacks.

That needs every record from the first wanted one up to the committed offsets; where Kafka has lost some, it is refused.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from jobs.batch import Batch, CommittedState
from jobs.commit_loop import retry_on_conflict
from jobs.destinations.base import Destination
from jobs.offsets import OffsetRange, Offsets, TopicPartition, total
from jobs.pipeline import Pipeline
from jobs.plan import TopicState
from jobs.replay.landed import Replayed, check_coordinates
from jobs.replay.reread import reread
from resources.errors import ConfigurationError, OffsetsGone, TopicRecreated

_LOG = logging.getLogger("batchmerge")

# First wanted offset, and the one after the last (None: as far as the table is), from what Kafka and the table have.
Wanted = Callable[[TopicState, CommittedState], tuple[Offsets, Offsets | None]]
# Positions in a batch are 32 bits of a version in ClickHouse.
_MOST = 2**32 - 1


def replay_from_kafka(pipeline: Pipeline, destination: Destination, wanted: Wanted) -> Replayed | None:
    """Reads records again and brings them into a table; None where the table has nothing, or nothing is wanted.

    Raises:
        OffsetsGone, TopicRecreated: Kafka does not have the records any more.
        ConfigurationError: the table's rows cannot be told apart, or nothing orders their changes.
    """
    check_coordinates(destination)

    def once() -> Replayed | None:
        committed = destination.committed()
        pipeline.check_generation(committed)
        if committed is None:
            return None
        topics = pipeline.topic_state()
        _check_order(pipeline, destination, committed)
        batch = reread_batch(committed, topics, *wanted(topics, committed), whole=destination.table.needs_key)
        if not total(batch.ranges):
            return None
        with reread(pipeline, destination.name, batch) as place:
            work = replace(pipeline.merge_context(destination), intermediate=place)
            merged = destination.replay(work, committed, [place.batch])
        _LOG.info("replayed %d offsets from Kafka into %s", total(batch.ranges), destination.name)
        return Replayed([place.batch], merged)

    return retry_on_conflict(once, destination.table.max_commit_attempts, destination.name)


def reread_batch(
    committed: CommittedState, topics: TopicState, start: Offsets, end: Offsets | None, whole: bool
) -> Batch:
    """The ranges that are read again, as a batch by the committed one's number. Pure but for its time.

    Args:
        whole: read up to the committed offsets, whatever `end` says: later changes to the same keys decide.
    """
    ranges = {}
    for tp, first in sorted(start.items()):
        done = _committed_offset(committed, topics, tp)
        last = done if whole or end is None else min(end.get(tp, done), done)
        if first >= last:
            continue
        if first < topics.first[tp]:
            raise OffsetsGone(
                f"offset {first} is wanted, but Kafka has only {topics.first[tp]} to {topics.stable[tp]}",
                where=f"topic {tp.topic}, partition {tp.partition}",
                remedy=f"begin at {tp}={topics.first[tp]}; what is older is in no system that Batchmerge knows",
                topic=tp.topic,
                partition=tp.partition,
                wanted=first,
                first=topics.first[tp],
                end=topics.stable[tp],
            )
        ranges[tp] = OffsetRange(first, last)
    if total(ranges) > _MOST:
        raise ConfigurationError(
            f"{total(ranges):,} offsets are too many for one replay",
            remedy=f"begin later: at most {_MOST:,} are possible",
        )
    return Batch(
        pipeline=committed.pipeline,
        number=committed.batch_number,
        commit_id=committed.commit_id,
        previous_commit_id=None,
        ranges=ranges,
        topic_ids=committed.topic_ids,
        planned_at=int(time.time() * 1000),
        spec_hash=committed.spec_hash,
    )


def _committed_offset(committed: CommittedState, topics: TopicState, tp: TopicPartition) -> int:
    where = f"topic {tp.topic}, partition {tp.partition}"
    done = committed.offsets.get(tp)
    if done is None:
        raise ConfigurationError(
            "the table has no committed offset of it", where=where, remedy="run the pipeline first"
        )
    there = topics.stable.get(tp)
    if there is None or there < done or topics.topic_ids.get(tp.topic) != committed.topic_ids.get(tp.topic):
        raise TopicRecreated(
            "Kafka has another topic of this name, or none: the records that the table was made from are gone",
            where=where,
            remedy="replay landed batches instead (`batchmerge replay --batches`), as far as there are any",
        )
    return done


def _check_order(pipeline: Pipeline, destination: Destination, committed: CommittedState) -> None:
    """Where a key moves between partitions, only batches tell what came first, and those are gone."""
    if destination.table.needs_key and pipeline.spec.changes.order_by == "arrival" and len(committed.offsets) > 1:
        raise ConfigurationError(
            "the order of changes to one key is that of their arrival (`changes.order_by: arrival`), which Kafka does "
            "not keep over several partitions",
            where=destination.name,
            remedy="replay landed batches instead (`batchmerge replay --batches`), or name a column that orders them",
        )


def from_offsets(start: Offsets, end: Offsets | None = None) -> Wanted:
    """Records from these offsets on."""
    return lambda _topics, _committed: (start, end)


def from_time(pipeline: Pipeline, first: datetime, last: datetime | None, what_is_left: bool) -> Wanted:
    """Records with timestamps in ``[first, last)``.

    Args:
        what_is_left: take what Kafka has, where retention may have deleted records of that time already.
    """

    def wanted(topics: TopicState, committed: CommittedState) -> tuple[Offsets, Offsets | None]:
        partitions = [tp for tp in topics.partitions if tp in committed.offsets]
        start = pipeline.offsets_at(partitions, first)
        for tp, offset in sorted(start.items()):
            if offset == topics.first[tp] > 0 and not what_is_left:
                raise OffsetsGone(
                    f"retention has deleted records before offset {offset}, and some of them may be of that time",
                    where=f"topic {tp.topic}, partition {tp.partition}",
                    remedy="replay what is left with `--what-is-left`, or begin later",
                )
        return start, None if last is None else pipeline.offsets_at(partitions, last)

    return wanted
