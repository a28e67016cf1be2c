"""Replay from Kafka: reads records again, for example with another transform, or for the first time.

For the first time, if the pipeline began after them, or if offsets were reset beyond them. The records land as a batch
that revises earlier ones (`jobs.replay.revise`), and all tables of the pipeline merge it. So an upsert table becomes
what it would be if the pipeline had begun there with the present file. A table of mode append gets the rows whose
coordinates it lacks.

If records were never landed, or retention has removed their batches, every record from the first wanted one up to the
landed ones is needed; if Kafka has lost some, the replay is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.batch import Batch, CommittedState, LandedBatch
from jobs.commit_loop import retry_on_conflict
from jobs.dead_letters.landing_again import land_again
from jobs.dead_letters.listing import open_dead_letters
from jobs.decode.envelope import MOVED
from jobs.iceberg.append import Append
from jobs.landing.batch_records import BatchRecords
from jobs.landing.new_tables import known_names, name_rule
from jobs.landing.places import Places, landed_from, places
from jobs.landing.ranges import LandedRanges, judge, land_ranges
from jobs.landing.registry_schemas import known_ids
from jobs.landing.task import Selection
from jobs.lineage import of_one_meaning
from jobs.offsets import OffsetRange, Offsets, Ranges, TopicPartition, total
from jobs.pipeline import Pipeline
from jobs.planning.plan import TopicState
from jobs.replay.coordinates import check_rereading
from jobs.replay.revising_batch import most_attempts, revising_batch
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.source import FromOffsets
from resources.errors import ConfigurationError, OffsetsGone, TopicRecreated

_LOG = logging.getLogger("batchmerge")

_RANGES = "topic string, partition int, start long, end long, first long"

# From Kafka's topics and the landed state to the first wanted offsets, and those after the last (None: all landed).
Wanted = Callable[[TopicState, CommittedState], tuple[Offsets, Offsets | None]]


def reread_from_kafka(pipeline: Pipeline, wanted: Wanted) -> LandedBatch | None:
    """Reads records again and lands them; None if nothing is landed yet, or nothing is wanted.

    The tables merge them next (`jobs.replay.revise.merge_tables`).

    Raises:
        OffsetsGone, TopicRecreated: Kafka no longer has the records.
        ConfigurationError: a table's rows cannot be distinguished, or nothing orders their changes.
    """
    place = pipeline.intermediate
    for destination in pipeline.destinations():
        check_rereading(pipeline, destination, from_kafka=True)
    place.prepare()

    def once() -> LandedBatch | None:
        committed = place.committed()
        pipeline.check_meaning(committed)
        if committed is None:
            return None
        _check_order(pipeline, committed)
        landed = place.landed().batches
        ranges = _ranges(pipeline, committed, landed, wanted)
        if not total(ranges):
            return None
        batch = revising_batch(pipeline, committed, 0)
        write = partial(_write, pipeline, batch, ranges, places(landed, committed.topic_ids, ranges))
        done = place.revise(batch, committed, landed, Append, write, pipeline.run_properties)
        _LOG.info("read %d offsets from Kafka again as %s", total(ranges), batch)
        return done

    landed = retry_on_conflict(once, most_attempts(pipeline), place.identifier)
    if landed and landed.moves.waiting:
        land_again(pipeline, kind=MOVED)
    return landed


def ranges_ahead(pipeline: Pipeline, wanted: Wanted) -> Ranges:
    """The ranges that `reread_from_kafka` would read now. Changes nothing; raises the same errors about Kafka."""
    committed = pipeline.intermediate.committed()
    return _ranges(pipeline, committed, pipeline.intermediate.landed().batches, wanted) if committed else {}


def _ranges(
    pipeline: Pipeline, committed: CommittedState, landed: Sequence[LandedBatch], wanted: Wanted
) -> dict[TopicPartition, OffsetRange]:
    topics = pipeline.topic_state()
    needs_key = any(table.needs_key for table in pipeline.spec.tables)
    found = wanted_ranges(committed, topics, of_one_meaning(landed), *wanted(topics, committed), whole=needs_key)
    check_start(pipeline.spec, found)
    return found


def check_start(spec: PipelineSpec, ranges: Ranges) -> None:
    """Requires that tables without a unique key have no rows of others for these records.

    An imported pipeline begins at the offsets where its connector stopped, in the tables that it has filled.

    Raises:
        ConfigurationError: some records are before `source.start`.
    """
    start, tables = spec.source.start, [table.table for table in spec.tables if not table.has_unique_key]
    if not isinstance(start, FromOffsets) or not tables:
        return
    first = {tp: start.offsets.get(tp.topic, {}).get(tp.partition, 0) for tp in ranges}
    before = [f"{tp}={first[tp]}" for tp, r in sorted(ranges.items()) if r.start < first[tp]]
    if before:
        raise ConfigurationError(
            f"records before `source.start` ({', '.join(before[:3])}) may be in {', '.join(tables)} as rows of another "
            "writer, which do not show their records and would come twice",
            where="source.start",
            remedy="begin at `source.start`; or, if no other writer has written these records, set `source.start: "
            "earliest` (a pipeline that has begun does not use it) and try again",
        )


def wanted_ranges(
    committed: CommittedState,
    topics: TopicState,
    landed: Sequence[LandedBatch],
    start: Offsets,
    end: Offsets | None,
    whole: bool,
) -> dict[TopicPartition, OffsetRange]:
    """The ranges that are read again.

    Args:
        landed: the known batches of the present meaning.
        whole: also read records after `end` that are not landed, since they change the same keys.
    """
    ranges, from_here = {}, landed_from(landed, committed.topic_ids)
    for tp, first in sorted(start.items()):
        done = _committed_offset(committed, topics, tp)
        last = done if end is None else min(end.get(tp, done), done)
        known = from_here.get(tp)
        if whole and (known is None or last < known):
            last = done if known is None else known
        if first >= last or first >= done:
            continue
        if first < topics.first[tp]:
            raise OffsetsGone(
                f"offset {first} is wanted, but Kafka has only {topics.first[tp]} to {topics.stable[tp]}",
                where=str(tp),
                remedy=f"begin at {tp}={topics.first[tp]}; what is older is in no system that Batchmerge knows",
                topic=tp.topic,
                partition=tp.partition,
                wanted=first,
                first=topics.first[tp],
                end=topics.stable[tp],
            )
        ranges[tp] = OffsetRange(first, last)
    return ranges


def _committed_offset(committed: CommittedState, topics: TopicState, tp: TopicPartition) -> int:
    where = str(tp)
    done = committed.offsets.get(tp)
    if done is None:
        raise ConfigurationError("nothing of it is landed yet", where=where, remedy="run the pipeline first")
    there = topics.stable.get(tp)
    if there is None or there < done or topics.topic_ids.get(tp.topic) != committed.topic_ids.get(tp.topic):
        raise TopicRecreated(
            "Kafka has another topic of this name, or none: the records that the tables were made from are gone",
            where=where,
            remedy="replay the landed batches that are left (`batchmerge replay --batches`)",
        )
    return done


def _check_order(pipeline: Pipeline, committed: CommittedState) -> None:
    """Requires an order of changes: if a key moves between partitions, only batches order them, which may be gone."""
    needs_key = any(table.needs_key for table in pipeline.spec.tables)
    if needs_key and pipeline.spec.changes.order_by == "arrival" and len(committed.offsets) > 1:
        raise ConfigurationError(
            "the order of changes to one key is that of their arrival (`changes.order_by: arrival`), which Kafka does "
            "not keep over several partitions",
            where=f"pipeline {pipeline.name}",
            remedy="replay landed batches instead (`batchmerge replay --batches`), or name a column that orders them",
        )


def _write(
    pipeline: Pipeline, batch: Batch, ranges: Ranges, known: Places, commit: Append, selection: Selection
) -> LandedRanges:
    """Has Spark tasks read the records of these ranges and write files.

    Args:
        known: the places of records that were landed before.
    """
    spec, spark = pipeline.spec, pipeline.spark("landing", pipeline.intermediate.catalog)
    records = BatchRecords(
        pipeline.kafka,
        spec,
        replace(batch, ranges=ranges),
        commit.schema,
        pipeline.intermediate.registries,
        # A replay adds no columns: records that would need one become dead letters.
        refused_fields={},
        names=name_rule(spec, known_names(commit.properties, pipeline.name)),
        places=known,
        revision=batch.number,
        schema_ids=known_ids(commit.properties, pipeline.name),
        record_size=commit.row_size,
    )
    recovered = _dead_letters(pipeline, spark, {tp: r for tp, r in ranges.items() if tp in known.stretches})
    landed = land_ranges(spark, records, commit, selection)
    if names := records.names_after(landed.report):
        commit.start_over()
        records = replace(records, names=names)
        landed = land_ranges(spark, records, commit, selection)
    judge(spark, records, commit.identifier, landed)
    return replace(landed, counts=replace(landed.counts, recovered=recovered))


def _dead_letters(pipeline: Pipeline, spark: SparkSession, ranges: Ranges) -> int:
    """The number of dead letters of these records, also in batches that retention has removed."""
    if not ranges:
        return 0
    # Not dead letters of a recreated topic's predecessor, which are of other records.
    restarted = {topic: numbers[-1] for topic, numbers in pipeline.intermediate.recreated().items()}
    wanted = [(*tp, r.start, r.end, restarted.get(tp.topic, 0)) for tp, r in ranges.items()]
    inside = (F.col("offset") >= F.col("start")) & (F.col("offset") < F.col("end"))
    found = open_dead_letters(pipeline, spark)
    found = found.join(F.broadcast(spark.createDataFrame(wanted, _RANGES)), ["topic", "partition"])
    return found.where(inside & (F.col("batch") >= F.col("first"))).count()


def from_offsets(start: Offsets, end: Offsets | None = None) -> Wanted:
    """Selects the records from these offsets on."""
    return lambda _topics, _committed: (start, end)


def from_time(pipeline: Pipeline, first: datetime, last: datetime | None, what_is_left: bool) -> Wanted:
    """Selects the records with timestamps in ``[first, last)``.

    Args:
        what_is_left: read what Kafka still has, even if retention may have deleted records of that time.
    """

    def wanted(topics: TopicState, committed: CommittedState) -> tuple[Offsets, Offsets | None]:
        partitions = [tp for tp in topics.partitions if tp in committed.offsets]
        start = pipeline.offsets_at(partitions, first)
        for tp, offset in sorted(start.items()):
            if offset == topics.first[tp] > 0 and not what_is_left:
                raise OffsetsGone(
                    f"retention has deleted records before offset {offset}, and some of them may be of that time",
                    where=str(tp),
                    remedy="add `--what-is-left` to replay what Kafka still has, or begin later",
                )
        return start, None if last is None else pipeline.offsets_at(partitions, last)

    return wanted
