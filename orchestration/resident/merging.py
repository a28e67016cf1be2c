"""A table of a run that stays: merged whenever something is landed that it has not, at its own pace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobs import protocol
from jobs.batch import CommittedState, LandedBatch
from jobs.destinations.base import Destination
from jobs.merged import MergedBatches
from jobs.pipeline import Pipeline
from orchestration import open_lineage
from orchestration.components import checks
from orchestration.components.ends import Ends
from orchestration.components.merging import Done, report, settled
from orchestration.components.metadata import table_columns
from orchestration.names import landing_key
from orchestration.resident.staying import Staying
from resources.errors import Unavailable


def stay_merging(stay: Staying) -> None:
    """Merges at every tick what is landed and not yet in the table, until the step is over."""
    assert stay.table
    with stay.at_work() as ticks:
        # Opened at the first tick: a step that failed by a mistake in a file is to wait before it looks again.
        pipeline, destination, done, first = None, None, None, True
        for _ in ticks:
            if pipeline is None or destination is None:
                pipeline = stay.open()
                destination = pipeline.destination_of(stay.table)
            # The first time also without news: a run that died may have left events unpublished.
            if first or _is_behind(pipeline, destination):
                merged = _merge(stay, pipeline, destination)
                done = merged.since(done) if merged else done
            first = False
            if stay.is_due(done is not None):
                _tell(stay, pipeline, destination, done)
                done = None
        if pipeline and destination and done:
            _tell(stay, pipeline, destination, done)


def _is_behind(pipeline: Pipeline, destination: Destination) -> bool:
    """A look at committed states."""
    landed = pipeline.intermediate.committed()
    return landed is not None and any(s is None or s.commit_id != landed.commit_id for s in _states(destination))


def _states(destination: Destination) -> Iterator[CommittedState | None]:
    """Those of its parts. One that does not answer holds back no other: the merge says of it what is the matter."""
    for part in destination.parts():
        try:
            yield part.committed()
        except Unavailable:
            yield None


def _merge(stay: Staying, pipeline: Pipeline, destination: Destination) -> MergedBatches | None:
    assert stay.table

    def work() -> MergedBatches | None:
        merged = min(state.batch_number if state else 0 for state in _states(destination))
        landed = _newest(pipeline.intermediate.landed().batches, merged)
        # What is wrong with the landing is the landing's to tell, and nobody merges it.
        if any(not result.passed for result in checks.landing_results(landing_key(pipeline.name), landed)):
            stay.require(checks.landing_results(landing_key(pipeline.name), landed))
        return protocol.merge(pipeline, destination)

    with stay.turn():
        merged = stay.limited(stay.table.time_limit_seconds, pipeline, destination.name, work)
    if merged:
        results = checks.table_results(stay.key, destination.committed(), merged.batches, merged.batches)
        if any(not result.passed for result in results):
            stay.require(results)
    return merged


def _newest(landed: Sequence[LandedBatch], merged: int) -> list[LandedBatch]:
    """The batches after the newest one that the table has, with that one."""
    return [batch for batch in landed if batch.number >= merged]


def _tell(stay: Staying, pipeline: Pipeline, destination: Destination, done: MergedBatches | None) -> None:
    """What was done since the last time, with what takes a look at the table itself."""
    assert stay.table
    table = stay.table
    batches, before, merged = (done.batches, done.before, done.merged) if done else ((), None, None)

    def look() -> Done:
        return settled(pipeline, destination, batches, before, merged)

    with stay.turn():
        now = stay.limited(table.time_limit_seconds, pipeline, destination.name, look)
    results, shown = report(pipeline, stay.key, table, now, None, Ends.now(pipeline))
    landed = open_lineage.landing(pipeline.intermediate)
    table_set = open_lineage.destination(destination, table_columns(pipeline.spec, table), landed)
    rows = merged.counts.changes if merged else 0
    with open_lineage.reported(pipeline, destination.name, [landed], table_set) as told:
        told.rows = merged.counts.inserted + merged.counts.updated if merged else 0
    stay.tell(shown, results, now.after.commit_id if now.after else None, batches=len(batches), rows=rows)
