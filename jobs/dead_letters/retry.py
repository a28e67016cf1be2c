"""Trying dead letters again, with the pipeline file as it is now (`batchmerge dead-letters retry`).

A letter that can be read now takes the place that it would have had: its row in the intermediate table, at its own
batch and `i`, loses its error and gets key, value and operation. That is one conditional commit, refused where
anything else was committed meanwhile, so a letter is mended once, whoever tries.

Then its batches are replayed into every table (`jobs.replay.landed`): keyed tables get the newest landed change of each
key that those batches touched, so a change that is newer than the mended one stays; other tables get the rows whose
coordinates they lack. Which batches are still to be replayed is a property of the intermediate table, set in the
commit that mends and removed when every table is done: a run that dies in between is made up for by the next one, and
replaying twice changes nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemovePropertiesUpdate

from jobs.batch import PREFIX
from jobs.commit_loop import retry_on_conflict
from jobs.dead_letters.direct import mend_direct
from jobs.dead_letters.letter import Letter
from jobs.dead_letters.listing import ALL, dead_letter_table
from jobs.dead_letters.redecode import Tried, mended_summary, redecode, write_back
from jobs.failpoints import failpoint
from jobs.iceberg.attempt import Attempt
from jobs.landing.direct import DirectLanding
from jobs.pipeline import Pipeline
from jobs.protocol import merge
from jobs.replay.landed import Replayed, check_coordinates, replay_batches
from resources.errors import CommitFailed, TerminalError
from resources.spark import spark_errors
from sql import render

_LOG = logging.getLogger("batchmerge")
_ATTEMPTS = 5


@dataclass(frozen=True)
class Retried:
    """What a retry did.

    Attributes:
        tried: dead letters of batches that every table has.
        mended: those that are rows now.
        stay: the first of the others, each with what is wrong with it now.
        replayed: per table what the replay did.
    """

    tried: int
    mended: int
    stay: list[Letter]
    replayed: dict[str, Replayed]


def retry(pipeline: Pipeline) -> Retried:
    """Decodes the dead letters again, lands those that can be read now, and brings them into every table.

    Letters of batches that a table has not got yet wait for the next time. A letter that still cannot be read, or that
    the transform fails on, stays one, with its new error.

    Raises:
        ConfigurationError: a table's rows cannot be told apart.
        BatchmergeError: a table cannot be brought up to date first; nothing is mended then.
    """
    for destination in pipeline.destinations():
        check_coordinates(destination)
    place = pipeline.intermediate
    place.prepare()
    if isinstance(place, DirectLanding):
        return _retried(_mend(pipeline, lambda: mend_direct(pipeline, place)), {})
    replayed = _settle(pipeline)
    for destination in pipeline.destinations():
        # A merge that read the landed rows before they were mended must not commit after they were replayed.
        merge(pipeline, destination)
    tried = _mend(pipeline, lambda: _mend_once(pipeline))
    return _retried(tried, {**replayed, **_settle(pipeline)})


def _retried(tried: Tried | None, replayed: dict[str, Replayed]) -> Retried:
    if tried is None:
        return Retried(0, 0, [], replayed)
    mended = sum(tried.mended.values())
    _LOG.info("mended %d of %d dead letters", mended, tried.tried)
    return Retried(tried.tried, mended, tried.stay, replayed)


def _mend(pipeline: Pipeline, once: Callable[[], Tried | None]) -> Tried | None:
    failure = TerminalError(
        f"the landed batches have changed during each of {_ATTEMPTS} attempts to mend dead letters",
        where=dead_letter_table(pipeline),
        remedy="try again while the pipeline is not running",
    )
    return retry_on_conflict(once, _ATTEMPTS, failure)


def _mend_once(pipeline: Pipeline) -> Tried | None:
    """One commit to the intermediate table; None where no batch is in every table yet."""
    place = pipeline.intermediate
    committed = place.committed()
    pipeline.check_generation(committed)
    merged = [state.batch_number if (state := d.committed()) else 0 for d in pipeline.destinations()]
    landed, _ = place.landed()
    if committed is None or not landed or not min(merged):
        return None
    with spark_errors(place.identifier):
        attempt = Attempt(place.catalog, place.identifier, pipeline.name, committed)
        spark = pipeline.spark("dead-letters", place.catalog)
        text = render("spark", "dead_letters", table=attempt.path, values=True, headers=True)
        # Of batches that retention has removed nothing can be replayed.
        letters = spark.sql(text, args={"first": landed[0].number, "last": min(merged), "most": ALL})
        with redecode(pipeline, spark, letters, committed, attempt.schema) as tried:
            if tried.changed is None:
                attempt.discard()
                return tried
            summary = mended_summary(pipeline, attempt, committed, tried.mended)
            write_back(spark, pipeline, attempt, summary, tried.changed)
    failpoint("mend.written")
    note = {_pending(pipeline): _note(pipeline, min(tried.mended), max(tried.mended))} if tried.mended else {}
    attempt.publish_head({}, note)
    failpoint("mend.published")
    return tried


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
            failpoint("mend.replayed")
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
