"""Batches with recovered dead letters that a table has still to get.

The commit that recovers dead letters (`jobs.dead_letters.retry`) sets a property of the intermediate table per
destination table, which names those batches. Replaying them into a table removes its property. So a retry that dies in
between is finished by that table's next merge or by the next retry, and retention keeps the batches until then.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping

from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemovePropertiesUpdate

from jobs.batch import PREFIX
from jobs.destinations.base import Destination
from jobs.failpoints import failpoint
from jobs.pipeline import Pipeline
from jobs.replay.landed import Replayed, replay_batches
from resources.errors import BatchmergeError, CommitFailed

_LOG = logging.getLogger("batchmerge")


def to_replay(pipeline: Pipeline, recovered: Mapping[int, int]) -> dict[str, str]:
    """The properties to set: these batches, and those that another retry has recovered and a table has not got yet."""
    if not recovered:
        return {}
    known = _table(pipeline).metadata.properties
    found = {}
    for destination in pipeline.destinations():
        batches = [*recovered, *_batches(known, _property(pipeline, destination))]
        found[_property(pipeline, destination)] = json.dumps([min(batches), max(batches)])
    return found


def first_to_replay(pipeline: Pipeline) -> int | None:
    """The first batch that a table has still to get; None where there is none."""
    known = _table(pipeline).metadata.properties
    own = [n for n in known if n == _prefix(pipeline) or n.startswith(_prefix(pipeline) + ".")]
    return min((_batches(known, name)[0] for name in own), default=None)


def replay_recovered(pipeline: Pipeline, destination: Destination) -> Replayed | None:
    """Replays the batches that the table has still to get; None where there are none.

    Raises:
        BatchmergeError: the replay failed; the next merge or retry tries it again.
    """
    done = None
    for name, value in _pending(pipeline, destination):
        first, last = json.loads(value)
        done = replay_batches(pipeline, destination, first, last)
        failpoint("retry.replayed")
        if name != _prefix(pipeline):
            _remove(pipeline, name, value)
    return done


def finish_retry(pipeline: Pipeline, destination: Destination) -> None:
    """After a merge: finishes what a dead retry has left. A problem is a warning: the merge is committed."""
    if pipeline.spec.intermediate.direct:
        return
    try:
        replay_recovered(pipeline, destination)
    except BatchmergeError as problem:
        _LOG.warning("%s has not got all recovered dead letters yet: %s", destination.name, problem)


def forget_replayed(pipeline: Pipeline) -> None:
    """Removes the property of earlier versions, which was one for all tables, once every table has the batches."""
    name = _prefix(pipeline)
    if value := _table(pipeline).metadata.properties.get(name):
        _remove(pipeline, name, value)


def _pending(pipeline: Pipeline, destination: Destination) -> Iterator[tuple[str, str]]:
    known = _table(pipeline).metadata.properties
    return ((n, known[n]) for n in (_prefix(pipeline), _property(pipeline, destination)) if n in known)


def _batches(properties: Mapping[str, str], name: str) -> list[int]:
    return [int(number) for number in json.loads(properties[name])] if name in properties else []


def _remove(pipeline: Pipeline, name: str, value: str) -> None:
    """Removes the property, unless another retry has recovered more meanwhile."""
    table = _table(pipeline)
    if table.metadata.properties.get(name) != value:
        return
    unmoved = AssertRefSnapshotId(ref="main", snapshot_id=table.metadata.refs["main"].snapshot_id)
    try:
        pipeline.intermediate.catalog.commit(
            table, [AssertTableUUID(uuid=table.metadata.table_uuid), unmoved], [RemovePropertiesUpdate(removals=[name])]
        )
    except CommitFailed as lost:
        _LOG.info("dead letters of %s: %s", pipeline.name, lost)


def _table(pipeline: Pipeline) -> Table:
    return pipeline.intermediate.catalog.require(pipeline.intermediate.identifier)


def _prefix(pipeline: Pipeline) -> str:
    # The name is in tables that exist. No pipeline's name has a dot.
    return f"{PREFIX}mended-to-replay.{pipeline.name}"


def _property(pipeline: Pipeline, destination: Destination) -> str:
    return f"{_prefix(pipeline)}.{destination.name}"
