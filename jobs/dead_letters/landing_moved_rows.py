"""Lands the dead letters of rows that got another key again, as soon as what the old key says is landed.

A property of the table keeps what the last search has found. So nothing is looked for twice: an idle run asks no Spark,
and dead letters of batches whose rows were all found are not looked at any more.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate

from jobs.batch import LandedBatch, Moves
from jobs.changes.columns import names_unchanged_columns
from jobs.decode.envelope import MOVED
from jobs.iceberg.history import landed_batches, property_prefix
from jobs.landing.intermediate import IntermediateTable
from jobs.pipeline import Pipeline

_LOG = logging.getLogger("batchmerge")


@dataclass(frozen=True)
class Search:
    """What a search has found.

    Attributes:
        newest: commit id of the newest batch then; "": there was no search.
        waiting: the first batch of which rows wait on; None: none.
    """

    newest: str = ""
    waiting: int | None = None

    def next(self, batches: Sequence[LandedBatch]) -> tuple[int, int] | None:
        """The first and the last batch whose rows are to be looked for now; None: nothing has come that they wait for.

        Args:
            batches: those that are known, ascending. Where the newest of then is not among them (retention, a
                rollback), all count as new.
        """
        ids = [batch.batch.commit_id for batch in batches]
        new = batches[ids.index(self.newest) + 1 :] if self.newest in ids else batches
        first = [b.number if b.batch.revises is None else b.batch.revises for b in new if b.moves.waiting]
        if self.waiting is not None and self.newest in ids and any(b.moves.left for b in new):
            first.append(self.waiting)
        return (max(min(first), batches[0].number), batches[-1].number) if first else None

    def after(self, batches: Sequence[LandedBatch], first: int, waiting: Collection[int]) -> Search:
        """What is known when batches from the first one on were searched, and rows of some wait on."""
        before = [] if self.waiting is None or self.waiting >= first else [self.waiting]
        return Search(batches[-1].batch.commit_id, min([*before, *waiting], default=None))


def land_moved_rows(pipeline: Pipeline, landed: LandedBatch) -> LandedBatch:
    """Of this batch, the newest one, and of earlier ones where it brings the deletes that theirs wait for.

    Returns:
        The batch as it counts from then on.
    """
    if landed.moves == Moves():
        return landed
    return replace(landed, counts=landed.counts.with_recovered(_search(pipeline)[landed.number]))


def land_moved_rows_of_dead_run(pipeline: Pipeline) -> None:
    """Of batches whose run died before, or could not ask a table."""
    _search(pipeline)


def _search(pipeline: Pipeline) -> Counter[int]:
    """How many rows of each batch were found and landed."""
    place = pipeline.intermediate
    table = place.catalog.load(place.identifier) if names_unchanged_columns(pipeline.spec) else None
    if table is None:
        return Counter()
    batches, last = landed_batches(table, pipeline.name).batches, _last(place, table)
    wanted = last.next(batches)
    if wanted is None:
        return Counter()
    from jobs.dead_letters.landing_again import land_again

    done = land_again(pipeline, wanted, MOVED)
    if done is None:
        return Counter()
    if done.recovered:
        found = done.recovered.total()
        _LOG.info("batches %d to %d: landed %d rows with the values of their old keys", *wanted, found)
    if done.all_asked or not done.waiting:
        _keep(place, last.after(batches, wanted[0], done.waiting))
    return done.recovered


def _last(place: IntermediateTable, table: Table) -> Search:
    return Search(**json.loads(table.properties.get(_property(place), "{}")))


def _keep(place: IntermediateTable, done: Search) -> None:
    updates = {_property(place): json.dumps(vars(done))}
    place.catalog.commit(place.catalog.require(place.identifier), (), (SetPropertiesUpdate(updates=updates),))


def _property(place: IntermediateTable) -> str:
    return property_prefix(place.pipeline, "main") + "moved-rows"
