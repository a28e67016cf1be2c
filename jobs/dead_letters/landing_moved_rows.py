"""Lands primary-key changes again that omit values, once the values of the old key are landed.

A property of the intermediate table keeps the result of the last search, so an idle run starts no Spark. Rows that are
still dead letters are searched for again when a delete of an old key lands while some of them lacks its delete (a row
may need the values of another one), or later, if a table could not be queried. Otherwise only `dead-letters retry`
tries again.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from jobs.batch import LandedBatch, Moves
from jobs.changes.columns import names_unchanged_columns
from jobs.decode.envelope import MOVED
from jobs.iceberg.landed_batches import landed_batches
from jobs.iceberg.table_property import MOVED_ROWS
from jobs.pipeline import Pipeline
from jobs.replay.coordinates import check_coordinates
from resources.errors import BatchmergeError, Interrupted

_LOG = logging.getLogger("batchmerge")
# The longest pause between two searches if a table cannot be queried.
_LONGEST_SECONDS = 600


@dataclass(frozen=True)
class Search:
    """The result of a search.

    Attributes:
        newest: commit id of the newest batch at that time; "": there was no search.
        waiting: the first batch with rows that are still dead letters, if any of them lacks the delete of its old key;
            None: none does.
        unasked: the first batch with such rows, if a table that may have their values could not be queried, or is
            behind; None: all could.
        since, again: since when a table could not be queried, and when to try again, in seconds since the epoch.
    """

    newest: str = ""
    waiting: int | None = None
    unasked: int | None = None
    since: int = 0
    again: int = 0

    def next(self, batches: Sequence[LandedBatch], now: int) -> tuple[int, int] | None:
        """The first and the last batch whose rows are to be searched for now; None: no reason to search.

        Args:
            batches: the known batches, ascending. If `newest` is not among them (retention, a rollback), all are new.
        """
        ids = [batch.batch.commit_id for batch in batches]
        new = batches[ids.index(self.newest) + 1 :] if self.newest in ids else batches
        first = [b.batch.first_number for b in new if b.moves.waiting]
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
        """The result after a search in batches from `first` on; some of their rows are still dead letters.

        The pauses between searches grow while a table cannot be queried.
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
    """Lands such rows of this batch, the newest one, and of earlier batches for which it has the deletes.

    Returns:
        The batch with updated counts.
    """
    if landed.moves == Moves():
        return landed
    return replace(landed, counts=landed.counts.with_recovered(search_moved_rows(pipeline)[landed.number]))


def search_moved_rows(pipeline: Pipeline) -> Counter[int]:
    """Searches such rows, also of batches whose run died before it or could not query a table, and lands what is found;
    returns the number of landed rows by batch."""
    place = pipeline.intermediate
    table = place.catalog.load(place.identifier) if names_unchanged_columns(pipeline.spec) else None
    if table is None:
        return Counter()
    batches = landed_batches(table, pipeline.name).batches
    last = Search(**MOVED_ROWS.read(table.properties, pipeline.name))
    now = int(time.time())
    wanted = last.next(batches, now)
    if wanted is None or not can_be_landed(pipeline):
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
    search = last.after(batches, wanted[0], now, waiting, unasked)
    place.keep(place.catalog.require(place.identifier), MOVED_ROWS.written(vars(search), pipeline.name))
    return done.recovered


def can_be_landed(pipeline: Pipeline) -> bool:
    """Whether every table can merge records that are read again: one that refuses them would stop for good. One that
    cannot be asked now holds up no landing either.

    A person who retries dead letters gets the same error before anything is landed.
    """
    for destination in pipeline.destinations():
        table = destination.table
        # Without coordinates a log takes what it has never had, and a retry is refused.
        if not table.has_unique_key and table.has_coordinates:
            try:
                check_coordinates(pipeline, destination)
            except Interrupted:
                raise
            except BatchmergeError as problem:
                _LOG.warning("rows with a new key stay dead letters: %s", problem)
                return False
    return True
