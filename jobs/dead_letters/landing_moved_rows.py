"""Lands the dead letters of rows that got another key again, as soon as what the old key says is landed.

A property of the table keeps what the last search has found. So an idle run asks no Spark, and what was found, or what
nobody knows though the delete is landed, is not looked for any more (but by a retry). A row whose delete is landed may
need the values of one whose delete is not: where any lacks it, all that stay are looked for again.
"""

from __future__ import annotations

import json
import logging
import time
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
# Between two searches for what a table may know that cannot be asked.
_LONGEST_SECONDS = 600


@dataclass(frozen=True)
class Search:
    """What a search has found.

    Attributes:
        newest: commit id of the newest batch then; "": there was no search.
        waiting: the first batch of rows some of which lack the delete of their old key; None: each has it.
        unasked: the first batch of rows whose values a table may know that could not be asked; None: none.
        since, again: seconds since the epoch: when that began, and when it is tried once more.
    """

    newest: str = ""
    waiting: int | None = None
    unasked: int | None = None
    since: int = 0
    again: int = 0

    def next(self, batches: Sequence[LandedBatch], now: int) -> tuple[int, int] | None:
        """The first and the last batch whose rows are to be looked for now; None: nothing has come that they wait for.

        Args:
            batches: those that are known, ascending. Where the newest of then is not among them (retention, a
                rollback), all count as new.
        """
        ids = [batch.batch.commit_id for batch in batches]
        new = batches[ids.index(self.newest) + 1 :] if self.newest in ids else batches
        first = [b.number if b.batch.revises is None else b.batch.revises for b in new if b.moves.waiting]
        if self.newest in ids and self.waiting is not None and any(b.moves.left for b in new):
            first.append(self.waiting)
        if self.newest in ids and self.unasked is not None and not self.since <= now < self.again:
            first.append(self.unasked)
        return (max(min(first), batches[0].number), batches[-1].number) if first else None

    def after(
        self,
        batches: Sequence[LandedBatch],
        first: int,
        now: int,
        waiting: Collection[int] = (),
        unasked: Collection[int] = (),
    ) -> Search:
        """What is known when batches from the first one on were searched, and rows of some stay.

        A table that cannot be asked is asked less and less often.
        """

        def earliest(before: int | None, found: Collection[int]) -> int | None:
            kept = [] if before is None else [max(before, batches[0].number)]
            return min([*(number for number in kept if number < first), *found], default=None)

        since, again = (self.since, self.again) if self.unasked is not None else (now, now)
        if unasked:
            again = now + min(now - since, _LONGEST_SECONDS)
        newest = batches[-1].batch.commit_id
        return Search(newest, earliest(self.waiting, waiting), earliest(self.unasked, unasked), since, again)


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
    now = int(time.time())
    wanted = last.next(batches, now)
    if wanted is None:
        return Counter()
    from jobs.dead_letters.landing_again import land_again

    done = land_again(pipeline, wanted, MOVED)
    if done is None:
        return Counter()
    if done.recovered:
        found = done.recovered.total()
        _LOG.info("batches %d to %d: landed %d rows with the values of their old keys", *wanted, found)
    waiting = done.waiting if done.lacks_deletes else ()
    unasked = () if done.all_asked else done.waiting
    _keep(place, last.after(batches, wanted[0], now, waiting, unasked))
    return done.recovered


def _last(place: IntermediateTable, table: Table) -> Search:
    return Search(**json.loads(table.properties.get(_property(place), "{}")))


def _keep(place: IntermediateTable, done: Search) -> None:
    updates = {_property(place): json.dumps(vars(done))}
    place.catalog.commit(place.catalog.require(place.identifier), (), (SetPropertiesUpdate(updates=updates),))


def _property(place: IntermediateTable) -> str:
    return property_prefix(place.pipeline, "main") + "moved-rows"
