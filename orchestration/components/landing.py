"""The landing step: Kafka's next batches into the intermediate table."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from jobs import protocol
from jobs.batch import LandedBatch
from jobs.pipeline import Pipeline
from jobs.replay.ahead import landed_between
from jobs.replay.from_kafka import from_time, reread_from_kafka
from orchestration import open_lineage
from orchestration.components import checks, metadata
from orchestration.components.config import LandConfig
from orchestration.components.ends import Ends
from orchestration.components.failures import as_failures, raise_for_checks
from orchestration.components.launch import Launch
from orchestration.components.progress import engine_log_in_run
from orchestration.components.window import Window
from orchestration.names import LANDED_TAG

# A materialization's metadata and data version.
Shown = tuple[dict[str, Any], dg.DataVersion | None]


def run_landing(
    context: dg.AssetExecutionContext, launch: Launch, key: dg.AssetKey, config: LandConfig
) -> Iterator[dg.MaterializeResult[Any]]:
    """Lands new batches; in a replay only reports what was landed in those hours."""
    with as_failures(launch.spec.retry, context.retry_number), engine_log_in_run(context.log):
        replayed = launch.replayed_window(context, config.mode)
        pipeline = launch.open(context.run.run_id)
        with open_lineage.landing_reported(pipeline) as work:
            facts, version = _report(pipeline, replayed) if replayed else _land(context, launch, pipeline, config)
            # A replay shows what was landed in its hours, by earlier runs.
            work.rows = 0 if metadata.REPLAY_OF in facts else facts["landed"]
        batches, new = pipeline.intermediate.landed().batches, facts["batches"]
        results = [*checks.landing_results(key, batches, new), checks.fields_result(key, pipeline.spec, batches)]
    yield dg.MaterializeResult(asset_key=key, check_results=results, metadata=facts, data_version=version)
    raise_for_checks(results, "/".join(key.path))


def _land(context: dg.AssetExecutionContext, launch: Launch, pipeline: Pipeline, config: LandConfig) -> Shown:
    if paused := launch.reason_to_stop(context):
        context.log.info("nothing is landed: %s", paused)
        return shown(pipeline, [], 0.0, metadata.tried((), paused))
    began = time.monotonic()
    done = list[LandedBatch]()
    known = set(pipeline.names)

    enough = config.turn(pipeline.spec.batch.time_limit_seconds)

    def work() -> None:
        for batch in protocol.land(pipeline, config.batches(pipeline.spec.batch.max_batches)):
            done.append(batch)
            rate = metadata.total(done).read / (time.monotonic() - began)
            context.log.info("%s is landed; %.0f records/s so far", batch.batch, rate)
            if paused := launch.reason_to_stop(context):
                context.log.info("landing stops: %s", paused)
                return
            if time.monotonic() - began > enough:
                context.log.info("landing stops here so that the tables can merge; the next run lands the rest")
                return

    pipeline.land_in_time(work, done)
    if not done:
        context.log.info("Kafka has nothing new")
    state = pipeline.intermediate.committed()
    context.instance.add_run_tags(context.run.run_id, {LANDED_TAG: str(state.batch_number if state else 0)})
    new = metadata.appeared("tables", [name for name in pipeline.names if name not in known], launch.name)
    return shown(pipeline, done, time.monotonic() - began, new)


def _report(pipeline: Pipeline, window: Window) -> Shown:
    """Reports what was landed in these hours. If they are before all landed batches, reads their records from Kafka."""
    if window.is_before(pipeline.intermediate.landed().batches):
        return shown(pipeline, reread_hours(pipeline, window), 0.0, {metadata.READ_AGAIN: str(window)})
    batches = landed_between(pipeline.intermediate.landed().batches, window.start, window.end)
    return shown(pipeline, batches, 0.0, {metadata.REPLAY_OF: str(window)})


def reread_hours(pipeline: Pipeline, window: Window) -> list[LandedBatch]:
    """Reads the records of these hours from Kafka, and lands them as one batch, if there are any."""

    def work() -> LandedBatch | None:
        return reread_from_kafka(pipeline, from_time(pipeline, window.start, window.end, what_is_left=False))

    reread = pipeline.land_in_time(work)
    return [reread] if reread else []


def shown(pipeline: Pipeline, batches: list[LandedBatch], seconds: float, more: dict[str, Any] | None = None) -> Shown:
    state = pipeline.intermediate.committed()
    now = datetime.now(UTC)
    found = {
        **(more or {}),
        **metadata.landed(batches, seconds),
        **metadata.progress(state.watermark if state else None, Ends.now(pipeline).lag(state), now),
        "run id": pipeline.run_id,
    }
    return found, dg.DataVersion(state.commit_id) if state else None
