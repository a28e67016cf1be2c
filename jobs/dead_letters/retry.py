"""Retries dead letters with the pipeline file as it is now (`batchmerge dead-letters retry`).

1. Decode the dead letters again (`jobs.dead_letters.redecode`). One that can be read now becomes the row that it would
   have been: its row in the intermediate table, at its own batch and `i`, loses its error and gets key, value and
   operation. All of them change in one conditional commit, which is refused if anything else was committed meanwhile.
2. Replay their batches into every table (`jobs.replay.landed`). Keyed tables get the newest landed change of each key
   that those batches touched, so a change that is newer than the recovered one stays. Other tables get the rows whose
   coordinates they lack.

The commit of step 1 also sets a table property that names the batches to replay, and the end of step 2 removes it. A
run that dies in between is finished by the next retry; replaying twice changes nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemovePropertiesUpdate

from jobs.batch import PREFIX
from jobs.commit_loop import retry_on_conflict
from jobs.dead_letters.dead_letter import DeadLetter
from jobs.dead_letters.direct import recover_direct
from jobs.dead_letters.listing import ALL, dead_letter_table
from jobs.dead_letters.redecode import Redecoded, recovered_summary, redecode, write_back
from jobs.failpoints import failpoint
from jobs.iceberg.attempt import Attempt
from jobs.landing.direct import DirectLanding
from jobs.pipeline import Pipeline
from jobs.protocol import merge
from jobs.replay.landed import Replayed, check_coordinates, replay_batches
from resources.errors import CommitFailed
from resources.spark import spark_errors
from sql import render

_LOG = logging.getLogger("batchmerge")


@dataclass(frozen=True)
class Retried:
    """What a retry did.

    Attributes:
        tried: dead letters of batches that every table has.
        recovered: those that are rows now.
        stay: the first of the others, each with its error of now.
        replayed: per table what the replay did.
    """

    tried: int
    recovered: int
    stay: list[DeadLetter]
    replayed: dict[str, Replayed]


def retry(pipeline: Pipeline) -> Retried:
    """Decodes the dead letters again, lands those that can be read now, and brings them into every table.

    Dead letters of batches that a table has not merged yet wait for the next retry. One that still cannot be read, or
    that the transform fails on, stays a dead letter with its new error.

    Raises:
        ConfigurationError: a table's rows cannot be told apart.
        BatchmergeError: a table cannot be brought up to date first; nothing is recovered then.
    """
    for destination in pipeline.destinations():
        check_coordinates(destination)
    place = pipeline.intermediate
    place.prepare()
    if isinstance(place, DirectLanding):
        return _retried(_recover(pipeline, lambda: recover_direct(pipeline, place)), {})
    replayed = _replay_recovered(pipeline)
    for destination in pipeline.destinations():
        # A merge that read the landed rows before step 1 must not commit after step 2.
        merge(pipeline, destination)
    redecoded = _recover(pipeline, lambda: _recover_once(pipeline))
    return _retried(redecoded, {**replayed, **_replay_recovered(pipeline)})


def _retried(redecoded: Redecoded | None, replayed: dict[str, Replayed]) -> Retried:
    if redecoded is None:
        return Retried(0, 0, [], replayed)
    recovered = sum(redecoded.recovered.values())
    _LOG.info("recovered %d of %d dead letters", recovered, redecoded.tried)
    return Retried(redecoded.tried, recovered, redecoded.stay, replayed)


def _recover(pipeline: Pipeline, once: Callable[[], Redecoded | None]) -> Redecoded | None:
    attempts = max(table.max_commit_attempts for table in pipeline.spec.tables)
    return retry_on_conflict(once, attempts, dead_letter_table(pipeline))


def _recover_once(pipeline: Pipeline) -> Redecoded | None:
    """One attempt at step 1; None where no batch is in every table yet."""
    table = pipeline.intermediate
    committed = table.committed()
    pipeline.check_generation(committed)
    merged = [state.batch_number if (state := d.committed()) else 0 for d in pipeline.destinations()]
    landed = table.landed().batches
    if committed is None or not landed or not min(merged):
        return None
    with spark_errors(table.identifier):
        attempt = Attempt(table.catalog, table.identifier, pipeline.name, committed)
        spark = pipeline.spark("dead-letters", table.catalog)
        text = render("spark", "dead_letters", table=attempt.path, values=True, headers=True)
        # Batches that retention has removed cannot be replayed.
        letters = spark.sql(text, args={"first": landed[0].number, "last": min(merged), "most": ALL})
        with redecode(pipeline, spark, letters, committed, attempt.schema) as redecoded:
            if redecoded.changed is None:
                attempt.discard()
                return redecoded
            summary = recovered_summary(pipeline, attempt, committed, redecoded.recovered)
            write_back(spark, pipeline, attempt, summary, redecoded.changed)
    failpoint("retry.written")
    attempt.publish_head({}, _to_replay(pipeline, redecoded.recovered))
    failpoint("retry.published")
    return redecoded


def _replay_recovered(pipeline: Pipeline) -> dict[str, Replayed]:
    """Step 2, also of a retry that died before it: replays the batches that the table property names."""
    table, name = pipeline.intermediate, _property(pipeline)
    replayed: dict[str, Replayed] = {}
    while named := table.catalog.require(table.identifier).metadata.properties.get(name):
        first, last = json.loads(named)
        for destination in pipeline.destinations():
            done = replay_batches(pipeline, destination, first, last)
            if done:
                replayed[destination.name] = done
            failpoint("retry.replayed")
        _remove_property(pipeline, name, named)
    return replayed


def _to_replay(pipeline: Pipeline, recovered: Mapping[int, int]) -> dict[str, str]:
    """The table property that names these batches, and those that another retry has recovered and not replayed yet."""
    if not recovered:
        return {}
    table, name = pipeline.intermediate, _property(pipeline)
    known = table.catalog.require(table.identifier).metadata.properties.get(name)
    batches = [*recovered, *(json.loads(known) if known else ())]
    return {name: json.dumps([min(batches), max(batches)])}


def _remove_property(pipeline: Pipeline, name: str, value: str) -> None:
    """Removes the property, unless another retry has recovered more meanwhile."""
    place = pipeline.intermediate
    table = place.catalog.require(place.identifier)
    if table.metadata.properties.get(name) != value:
        return
    unmoved = AssertRefSnapshotId(ref="main", snapshot_id=table.metadata.refs["main"].snapshot_id)
    try:
        place.catalog.commit(
            table, [AssertTableUUID(uuid=table.metadata.table_uuid), unmoved], [RemovePropertiesUpdate(removals=[name])]
        )
    except CommitFailed as lost:
        _LOG.info("dead letters of %s: %s", pipeline.name, lost)


def _property(pipeline: Pipeline) -> str:
    # The name is in tables that exist.
    return f"{PREFIX}mended-to-replay.{pipeline.name}"
