"""A table's step: merges the landed batches that the table lacks; in a replay merges landed batches again."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from jobs import protocol
from jobs.batch import CommittedState, LandedBatch, MergeCounts
from jobs.destinations.base import Destination
from jobs.destinations.registry import kind_of
from jobs.merged import MergedBatches
from jobs.pipeline import Pipeline
from jobs.replay.landed import replay_window
from jobs.spec.columns import RowColumn
from jobs.spec.tables import Table
from jobs.verify.drift import schema_drift
from jobs.verify.stale_keys import stale_keys
from orchestration import open_lineage
from orchestration.components import checks, metadata
from orchestration.components.config import MergeConfig
from orchestration.components.ends import Ends
from orchestration.components.failures import as_failures, raise_for_checks
from orchestration.components.launch import Launch
from orchestration.components.progress import engine_log_in_run
from orchestration.components.window import Window


@dataclass(frozen=True)
class TableResult:
    """What a step did to its table, and the table after it.

    Attributes:
        merge: None: there was nothing to merge.
        after: committed state now.
        landed: all landed batches that are known.
        duplicates: keys with more than one row.
        stale: keys of which the table has an older row than was sent.
        drift: differences between the table's columns and the declared ones.
        rows: number of rows, or why it is unknown.
    """

    merge: MergedBatches | None
    after: CommittedState | None
    landed: Sequence[LandedBatch]
    duplicates: int
    stale: int
    drift: Sequence[str]
    rows: int | str | None

    @property
    def batches(self) -> Sequence[LandedBatch]:
        return self.merge.batches if self.merge else ()

    @property
    def counts(self) -> MergeCounts:
        return self.merge.merged.counts if self.merge else MergeCounts()

    @property
    def written(self) -> int:
        """Rows that were inserted or updated."""
        return self.counts.inserted + self.counts.updated


def run_merge(
    context: dg.AssetExecutionContext,
    launch: Launch,
    key: dg.AssetKey,
    table: Table,
    columns: Sequence[RowColumn],
    config: MergeConfig,
) -> Iterator[dg.MaterializeResult[Any]]:
    """Merges within the table's time limit, so that a hanging system delays nobody else for longer."""
    with as_failures(launch.spec.retry, context.retry_number), engine_log_in_run(context.log):
        replayed = launch.replayed_window(context, config.mode)
        pipeline = launch.open(context.run.run_id)
        destination = pipeline.destination_of(table)
        paused = None if replayed else launch.reason_to_stop(context, table)

        def work() -> TableResult:
            if paused:
                context.log.info("nothing is merged: %s", paused)
                return settled(pipeline, destination)
            return advance_or_replay(pipeline, destination, replayed)

        done = within_limit(pipeline, destination, columns, work)
        results, shown = report(pipeline, key, table, done, replayed, Ends.now(pipeline))
    _log(context, done)
    yield dg.MaterializeResult(
        asset_key=key,
        check_results=results,
        data_version=dg.DataVersion(done.after.commit_id) if done.after else None,
        metadata={**shown, **metadata.tried((), paused)},
    )
    raise_for_checks(results, destination.name)


def advance_or_replay(pipeline: Pipeline, destination: Destination, window: Window | None) -> TableResult:
    """Merges the landed batches that the table lacks, or again those that were landed in the window."""
    done = _replay(pipeline, destination, window) if window else _advance(pipeline, destination)
    return settled(pipeline, destination, done)


def within_limit(
    pipeline: Pipeline, destination: Destination, columns: Sequence[RowColumn], work: Callable[[], TableResult]
) -> TableResult:
    """Does the work within the table's time limit, and sends its lineage."""
    limit = destination.table.time_limit_seconds
    with open_lineage.merge_reported(pipeline, destination, columns) as work_done:
        done = pipeline.in_time(limit, destination.name, work)
        work_done.rows = done.written
    return done


def report(
    pipeline: Pipeline, key: dg.AssetKey, table: Table, done: TableResult, replayed: Window | None, ends: Ends
) -> tuple[list[dg.AssetCheckResult], dict[str, Any]]:
    """The checks and the metadata for what a step did to a table."""
    now, behind = ends.at, ends.lag(done.after)
    watermark = done.after.watermark if done.after else None
    merged = checks.with_others(done.batches, lambda: done.landed)
    results = checks.table_results(key, done.after, done.landed, merged)
    results.append(checks.schema_result(key, done.drift))
    if checks.counts_keys(table):
        results.append(checks.keys_result(key, done.duplicates))
    if table.has_unique_key:
        results.append(checks.stale_result(key, done.stale, pipeline.name))
    if pipeline.spec.freshness:
        results.append(checks.caught_up_result(key, pipeline.spec.freshness, watermark, behind, now))
    shown = {
        **({metadata.REPLAY_OF: str(replayed)} if replayed else {}),
        **metadata.merged(done.merge, kind_of(table).capabilities.reference),
        **metadata.progress(watermark, behind, now),
        **metadata.row_count(done.rows),
        **metadata.stale_keys(done.stale),
        "run id": pipeline.run_id,
    }
    return results, shown


def _advance(pipeline: Pipeline, destination: Destination) -> MergedBatches | None:
    if pipeline.spec.commit != "together":
        return protocol.merge(pipeline, destination)
    # The first table's step commits all tables; the steps of the others wait for it and find nothing to merge.
    return next(t.merged for t in protocol.merge_together(pipeline) if t.destination.name == destination.name)


def _replay(pipeline: Pipeline, destination: Destination, window: Window) -> MergedBatches | None:
    if window.lands and window.is_before(pipeline.intermediate.landed().batches):
        # The landing's step has read these hours from Kafka, as a new batch: merge it.
        return _advance(pipeline, destination)
    return replay_window(pipeline, destination, window.start, window.end)


def settled(pipeline: Pipeline, destination: Destination, done: MergedBatches | None = None) -> TableResult:
    """The table after the step, as its system shows it. Before records have brought a column there is no table."""
    if not pipeline.spec.source.row:
        landed = pipeline.intermediate.landed().batches
        return TableResult(done, destination.committed(), landed, 0, 0, (), None)
    destination = pipeline.resolved(destination)
    work = pipeline.merge_context(destination)
    duplicates = done.merged.duplicates if done else 0
    if done and duplicates is None:
        duplicates = destination.touched_duplicates(work, done.batches) if checks.counts_keys(destination.table) else 0
    after = destination.committed()
    landed = pipeline.intermediate.landed().batches
    stale = stale_keys(pipeline, destination, after, landed, work.session)
    drift, rows = schema_drift(destination, work.session), destination.read(work.session).known_count()
    return TableResult(done, after, landed, duplicates or 0, stale, drift, rows)


def _log(context: dg.AssetExecutionContext, done: TableResult) -> None:
    if done.merge is None:
        context.log.info("nothing to merge")
        return
    effect = ", ".join(f"{number} {what}" for what, number in metadata.effect(done.counts).items())
    context.log.info("batches %d to %d: %s", done.batches[0].number, done.batches[-1].number, effect)
