"""Trying dead letters again, with the pipeline file as it is now (`batchmerge dead-letters retry`).

A letter that can be read now takes the place that it would have had: its row in the intermediate table, at its own
batch and `i`, loses its error and gets key, value and operation. That is one conditional commit, refused where
anything else was committed meanwhile, so a letter is mended once, whoever tries.

Then its batches are replayed into every table (`jobs.replay`): keyed tables get the newest landed change of each key
that those batches touched, so a change that is newer than the mended one stays; other tables get the rows whose
coordinates they lack. Which batches are still to be replayed is a property of the intermediate table, set in the
commit that mends and removed when every table is done: a run that dies in between is made up for by the next one, and
replaying twice changes nothing.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemovePropertiesUpdate
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from jobs.batch import PREFIX, Batch, CommittedState
from jobs.dead_letters.reading import ALL, dead_letter_table
from jobs.destinations.iceberg.attempt import Attempt
from jobs.destinations.iceberg.history import MENDED
from jobs.failpoints import reached
from jobs.landing.columns import CHANGES, KEPT, key_fields
from jobs.landing.records import RecordReader
from jobs.landing.schema_ids import Registries
from jobs.landing.transforming import transformed
from jobs.landing.writing import record_reader
from jobs.offsets import OffsetRange
from jobs.pipeline import Pipeline
from jobs.protocol import merge
from jobs.replay import Replayed, check_coordinates, replay_batches
from resources.errors import CommitFailed, ConfigurationError, TerminalError
from resources.spark import spark_errors
from sql import quote, render

_LOG = logging.getLogger("batchmerge")
_SCOPED = "spark.sql.iceberg.snapshot-property."
_VIEW = "batchmerge_mended"
_ATTEMPTS = 5


@dataclass(frozen=True)
class Retried:
    """What a retry did.

    Attributes:
        tried: dead letters of batches that every table has.
        mended: those that are rows now.
        replayed: per table what the replay did.
    """

    tried: int
    mended: int
    replayed: dict[str, Replayed]


def retry(pipeline: Pipeline) -> Retried:
    """Decodes the dead letters again, lands those that can be read now, and brings them into every table.

    Letters of batches that a table has not got yet wait for the next time.

    Raises:
        ConfigurationError: the pipeline has no intermediate table, or a table whose rows cannot be told apart, or a
            transform that reads what letters do not keep.
        BatchmergeError: a table cannot be brought up to date first; nothing is mended then.
    """
    if pipeline.spec.intermediate.direct:
        raise ConfigurationError(
            "the pipeline has no intermediate table (`intermediate.direct`), so dead letters cannot take their place",
            where=f"pipeline {pipeline.name}",
            remedy="read the topic again with a mended pipeline of another name",
        )
    resolved = pipeline.spec.source.resolved
    if resolved and resolved.mentions("_headers"):
        raise ConfigurationError(
            "the transform wants headers, which dead letters do not keep",
            where=f"pipeline {pipeline.name}",
            remedy="land their offsets again (`batchmerge offsets`), or leave headers out of the transform",
        )
    for destination in pipeline.destinations():
        check_coordinates(destination)
    pipeline.intermediate.prepare()
    replayed = _settle(pipeline)
    for destination in pipeline.destinations():
        # A merge that read the landed rows before they were mended must not commit after they were replayed.
        merge(pipeline, destination)
    tried, mended = _mend(pipeline)
    return Retried(tried, mended, {**replayed, **_settle(pipeline)})


def _mend(pipeline: Pipeline) -> tuple[int, int]:
    """Letters tried, and letters mended: one commit to the intermediate table."""
    failed: CommitFailed | None = None
    for _ in range(_ATTEMPTS):
        committed = pipeline.intermediate.committed()
        pipeline.check_generation(committed)
        merged = [state.batch_number if (state := d.committed()) else 0 for d in pipeline.destinations()]
        landed, _ = pipeline.intermediate.landed()
        if committed is None or not landed or not min(merged):
            return 0, 0
        try:
            # Of batches that retention has removed nothing can be replayed.
            return _mend_once(pipeline, committed, landed[0].number, min(merged))
        except CommitFailed as lost:
            _LOG.warning("dead letters of %s: %s", pipeline.name, lost)
            failed = lost
    raise TerminalError(
        f"the landed batches have changed during each of {_ATTEMPTS} attempts to mend dead letters",
        where=dead_letter_table(pipeline),
        remedy="try again while the pipeline is not running",
    ) from failed


def _mend_once(pipeline: Pipeline, committed: CommittedState, first: int, last: int) -> tuple[int, int]:
    place = pipeline.intermediate
    with spark_errors(place.identifier):
        attempt = Attempt(place.catalog, place.identifier, pipeline.name, committed)
        spark = pipeline.spark("dead-letters", place.catalog)
        tried, by_batch = _read_again(pipeline, spark, attempt, committed, (first, last))
        if not by_batch:
            attempt.discard()
            return tried, 0
        summary = {
            **attempt.summary,
            **committed.to_properties(),
            **pipeline.run_properties,
            MENDED: json.dumps({str(number): count for number, count in sorted(by_batch.items())}),
        }
        _merge(spark, pipeline, attempt, summary, min(by_batch), max(by_batch))
    reached("mend.written")
    attempt.publish_head({}, {_pending(pipeline): _note(pipeline, min(by_batch), max(by_batch))})
    reached("mend.published")
    mended = sum(by_batch.values())
    _LOG.info("mended %d of %d dead letters of batches up to %d", mended, tried, last)
    return tried, mended


def _read_again(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, committed: CommittedState, batches: tuple[int, int]
) -> tuple[int, Counter[int]]:
    """Makes the view of the letters that can be read now; how many were tried, and how many of each batch can."""
    text = render("spark", "dead_letters", table=attempt.path, values=True)
    found = spark.sql(text, args={"first": batches[0], "last": batches[1], "most": ALL})
    spark.catalog.dropTempView(_VIEW)
    tried = found.count()
    if not tried:
        return 0, Counter()
    batch = Batch(
        pipeline=pipeline.name,
        number=committed.batch_number,
        commit_id=committed.commit_id,
        previous_commit_id=None,
        ranges={tp: OffsetRange(0, end) for tp, end in committed.offsets.items()},
        topic_ids=committed.topic_ids,
        planned_at=0,
        spec_hash=committed.spec_hash,
    )
    value_type = attempt.schema.field("value").type
    schemas = Registries(pipeline.registries()).schemas_of(pipeline.spec.source, found)
    again = Again(record_reader(pipeline.spec, batch, value_type, schemas, KEPT.name in attempt.schema.names))
    if resolved := pipeline.spec.source.resolved:
        found = transformed(found, resolved, again.reader, carried=("batch", "i"))
    schema = pa.schema(
        [
            pa.field("batchNumber", pa.int64()),
            pa.field("i", pa.int64()),
            *([pa.field("key", pa.struct(key_fields(pipeline.spec)))] if pipeline.spec.changes.key else []),
            pa.field("value", value_type),
            pa.field("op", pa.string()),
            *([KEPT] if again.reader.keeps else []),
        ]
    )
    mended: DataFrame = found.mapInArrow(_plain_function(again), from_arrow_schema(schema, prefer_timestamp_ntz=True))
    mended.createOrReplaceTempView(_VIEW)
    spark.catalog.cacheTable(_VIEW)
    counts = spark.table(_VIEW).groupBy("batchNumber").count().collect()
    return tried, Counter({row["batchNumber"]: row["count"] for row in counts})


@dataclass(frozen=True)
class Again:
    """Turns Arrow batches of dead letters into those rows of the intermediate table that are good now."""

    reader: RecordReader

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            shaped = self.reader.read(batch)
            good = pc.and_(pc.is_null(shaped.column("error")), pc.is_in(shaped.column("op"), pa.array(CHANGES)))
            names = [name for name in ("key", "value", "op", KEPT.name) if name in shaped.schema.names]
            columns = [batch.column("batch"), batch.column("i"), *(shaped.column(name) for name in names)]
            yield pa.RecordBatch.from_arrays(columns, names=["batchNumber", "i", *names]).filter(good)


def _merge(
    spark: SparkSession, pipeline: Pipeline, attempt: Attempt, summary: dict[str, str], first: int, last: int
) -> None:
    keyed = pipeline.spec.changes.key is not None
    keeps = KEPT.name in attempt.schema.names
    text = render(
        "spark", "mend", target=attempt.path, mended=[_VIEW], keyed=keyed, keeps=keeps, first=first, last=last
    )
    # Snapshot properties of a MERGE are session-wide: taken back whatever happens.
    try:
        for key, value in summary.items():
            spark.conf.set(_SCOPED + key, value)
        spark.sql(text)
    finally:
        for key in summary:
            spark.conf.unset(_SCOPED + key)
        spark.sql(f"UNCACHE TABLE IF EXISTS {quote('spark', _VIEW)}")


def _settle(pipeline: Pipeline) -> dict[str, Replayed]:
    """Replays the batches whose letters were mended into every table, and takes the note of it away."""
    place, name = pipeline.intermediate, _pending(pipeline)
    replayed: dict[str, Replayed] = {}
    while note := place.catalog.require(place.identifier).metadata.properties.get(name):
        first, last = json.loads(note)
        for destination in pipeline.destinations():
            done = replay_batches(pipeline, destination, first, last)
            if done:
                replayed[destination.name] = done
            reached("mend.replayed")
        _forget(pipeline, name, note)
    return replayed


def _note(pipeline: Pipeline, first: int, last: int) -> str:
    """These batches, and those that another retry has mended and not replayed yet."""
    place = pipeline.intermediate
    known = place.catalog.require(place.identifier).metadata.properties.get(_pending(pipeline))
    open_first, open_last = json.loads(known) if known else (first, last)
    return json.dumps([min(first, open_first), max(last, open_last)])


def _forget(pipeline: Pipeline, name: str, note: str) -> None:
    """Removes the note, unless another retry has mended more meanwhile."""
    place = pipeline.intermediate
    table = place.catalog.require(place.identifier)
    if table.metadata.properties.get(name) != note:
        return
    unmoved = AssertRefSnapshotId(ref="main", snapshot_id=table.metadata.refs["main"].snapshot_id)
    try:
        place.catalog.commit(
            table, [AssertTableUUID(uuid=table.metadata.table_uuid), unmoved], [RemovePropertiesUpdate(removals=[name])]
        )
    except CommitFailed as lost:
        _LOG.info("dead letters of %s: %s", pipeline.name, lost)


def _pending(pipeline: Pipeline) -> str:
    return f"{PREFIX}mended-to-replay.{pipeline.name}"


def _plain_function(again: Again) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Spark wants a function, not a callable object."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return again(batches)

    return read
