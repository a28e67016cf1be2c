"""Running a pipeline's Dagster jobs in this process, against the instance of the data folder.

Pools that dead runs still hold are freed, with or without a Dagster daemon; for those of live runs a run waits.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click
import dagster as dg
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG
from dagster._core.utils import make_new_run_id

from jobs.spec.pipeline import PipelineSpec
from orchestration.cli.steps import executing_side_by_side
from orchestration.current_hour import hour_of
from orchestration.names import (
    MAX_RUNTIME_TAG,
    PIPELINE_TAG,
    SIGNS_TAG,
    WORK_ASIDE,
    WORK_TAG,
    landing_key,
    op_name,
)
from orchestration.pools.pool_waits import PoolWaits, holders, in_the_way, waiting_for_pools
from orchestration.runs.dead_runs import end_dead_runs
from orchestration.runs.run_process import process_tags
from orchestration.runs.signs_of_life import signs_of_life
from orchestration.step_failures import failure_text, failures, is_transient, traceback_of

_LOG = logging.getLogger("batchmerge")
# At most this many steps of a run at once, if the caller names no other number.
_AT_ONCE = 32
# The daemon's limits are for its own runs: here a person waits, and can interrupt.
_NO_LIMITS = {MAX_RUNTIME_TAG: "0", WORK_TAG: WORK_ASIDE}


@dataclass(frozen=True)
class StepResult:
    """The result of one asset of a run.

    Attributes:
        metadata: of its materialization, as plain values.
        problem: the error; None: it succeeded.
        transient: whether the step may succeed later.
    """

    asset: str
    metadata: Mapping[str, Any]
    problem: str | None = None
    transient: bool = False


@dataclass(frozen=True)
class RunResult:
    run_id: str
    steps: list[StepResult]

    @property
    def success(self) -> bool:
        return all(step.problem is None for step in self.steps)

    @property
    def transient(self) -> bool:
        """Whether a failed run may succeed later: all its errors are transient."""
        return all(step.transient for step in self.steps if step.problem)

    @property
    def landing(self) -> StepResult:
        return self.steps[0]

    @property
    def tables(self) -> list[StepResult]:
        return self.steps[1:]


def definitions_of(pipeline: str, spec: PipelineSpec) -> dg.Definitions:
    """Dagster's definitions of this one pipeline; the files of others are not read."""
    # Imported here, so that a wrong name is reported at once.
    from orchestration.components import KafkaPipeline

    return KafkaPipeline(pipeline, spec).definitions()


def run_job(
    instance: dg.DagsterInstance,
    definitions: dg.Definitions,
    pipeline: str,
    config: Mapping[str, object],
    hours: tuple[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
    wait: bool = True,
    assets: Sequence[dg.AssetKey] | None = None,
) -> RunResult:
    """One run of the pipeline's job.

    Args:
        config: options of the landing step; `mode` and `topics` go to every step.
        hours: first and last partition of a replay; None: the current hour.
        tags: further tags of the run.
        wait: whether to wait for runs that hold a pool of this one.
        assets: only these; None: all of the job's.

    Raises:
        Unavailable: another run holds a pool, and `wait` is false.
        KeyboardInterrupt: the process was asked to end (INT, TERM).
    """
    job = definitions.resolve_job_def(pipeline)
    if assets is not None:
        job = job.get_subset(asset_selection=set(assets))
    partitions = job.partitions_def
    assert partitions is not None
    current, asked = (
        (None, {ASSET_PARTITION_RANGE_START_TAG: hours[0], ASSET_PARTITION_RANGE_END_TAG: hours[1]})
        if hours
        else hour_of(partitions, datetime.now(UTC))
    )
    tagged = {**(tags or {}), PIPELINE_TAG: pipeline, **asked}
    result = execute(instance, job, tagged, {"ops": _ops(job, config)}, wait, current)
    return RunResult(result.run_id, _steps(job, result))


def execute(
    instance: dg.DagsterInstance,
    job: dg.JobDefinition,
    tags: Mapping[str, str],
    run_config: Mapping[str, object],
    wait: bool,
    partition: str | None = None,
    pools: Collection[str] = (),
    at_once: int = _AT_ONCE,
    waits_once_begun: bool = False,
) -> dg.ExecuteInProcessResult:
    """One run of the job in this process; see `run_job`.

    Args:
        pools: pools that the steps claim themselves, besides those of their definitions.
        at_once: at most this many steps at once.
        waits_once_begun: also without `wait` the run waits for another one that takes a table later: what was done
            until then is not lost.
    """
    logging.getLogger("dagster").setLevel(logging.CRITICAL)
    end_dead(instance)
    pools = {*pools, *(node.pool for node in job.all_node_defs if isinstance(node, dg.OpDefinition) and node.pool)}
    if not wait and (held := holders(instance, pools)):
        raise in_the_way(held)
    run_id, waits = make_new_run_id(), PoolWaits(instance, _LOG.info, wait or waits_once_begun)
    try:
        with executing_side_by_side(at_once), waiting_for_pools(waits), signs_of_life(instance, run_id):
            result = job.execute_in_process(
                instance=instance,
                partition_key=partition,
                tags={**tags, **process_tags(run_id), **_NO_LIMITS, SIGNS_TAG: run_id},
                raise_on_error=False,
                run_id=run_id,
                run_config={**run_config, "loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            )
    finally:
        # An interrupted step still holds its pool.
        instance.event_log_storage.free_concurrency_slots_for_run(run_id)
    if result.dagster_run.status == dg.DagsterRunStatus.CANCELED:
        raise KeyboardInterrupt
    if waits.refusal:
        raise waits.refusal
    for bug in filter(None, map(traceback_of, failures(result))):
        click.echo(bug, err=True)
    return result


def end_dead(instance: dg.DagsterInstance) -> None:
    """Ends the runs whose process has ended, and logs a line for each."""
    for line in end_dead_runs(instance):
        _LOG.info(line)


def _ops(job: dg.JobDefinition, config: Mapping[str, object]) -> dict[str, object]:
    """The options of each step: the landing gets all of them, tables only `mode` and `topics`."""
    mode = {name: value for name, value in config.items() if name in ("mode", "topics")}
    return {
        op_name(job.name, key): {"config": dict(config) if key == landing_key(job.name) else mode}
        for key in job.asset_layer.executable_asset_keys
    }


def _steps(job: dg.JobDefinition, result: dg.ExecuteInProcessResult) -> list[StepResult]:
    """The landing first, then the tables."""
    landing = landing_key(job.name)
    keys = sorted(job.asset_layer.executable_asset_keys, key=lambda key: (key != landing, key))
    made = {event.asset_key: event for event in result.get_asset_materialization_events()}
    failed = {event.step_key: event for event in failures(result)}
    return [_step(key, made.get(key), failed.get(op_name(job.name, key))) for key in keys]


def plain(value: dg.MetadataValue[Any]) -> Any:
    """A metadata value as a plain one; a table (the topics of `for_each`) becomes its rows."""
    return [dict(row.data) for row in value.records] if isinstance(value, dg.TableMetadataValue) else value.value


def _step(key: dg.AssetKey, made: dg.DagsterEvent | None, failed: dg.DagsterEvent | None) -> StepResult:
    asset = "/".join(key.path)
    metadata = {}
    if made is not None:
        metadata = {name: plain(value) for name, value in made.materialization.metadata.items()}
    if failed is None:
        return StepResult(asset, metadata, None if made else "not run: a step before it failed", transient=not made)
    return StepResult(asset, metadata, failure_text(failed), is_transient(failed))
