"""What runs a pipeline by itself: its job and its schedule."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from orchestration.components.launch import Launch
from orchestration.current_hour import hour_of
from orchestration.executor import PRELOAD, step_processes
from orchestration.names import FILE_TAG, PIPELINE_TAG, WORK_BEGUN, WORK_TAG, file_hash
from orchestration.runs import current_run
from orchestration.sensors.busy import free_to_advance
from orchestration.sensors.idle import idle_reason


def pipeline_job(
    launch: Launch, assets: Sequence[dg.AssetsDefinition], others: Sequence[dg.AssetCheckKey]
) -> dg.UnresolvedAssetJobDefinition:
    """Landing and all tables, every step in a process of its own, so that a hanging table holds up no other.

    Args:
        others: checks of these assets that have a job of their own.
    """
    keys = [key for asset in assets for key in asset.keys]
    return dg.define_asset_job(
        launch.name,
        selection=dg.AssetSelection.assets(*keys) - dg.AssetSelection.checks(*others),
        description=launch.spec.description or None,
        tags={PIPELINE_TAG: launch.name, FILE_TAG: file_hash(launch.spec), WORK_TAG: WORK_BEGUN},
        executor_def=step_processes(len(assets), PRELOAD),
    )


def pipeline_schedule(
    launch: Launch, job: dg.UnresolvedAssetJobDefinition, hours: dg.HourlyPartitionsDefinition
) -> dg.ScheduleDefinition:
    """Runs the assets that no other run works on, for the current hour. Skips if the pipeline is paused, another run
    lands or waits, or nothing is new."""

    @dg.schedule(
        name=f"{launch.name}_schedule",
        target=job,
        cron_schedule=launch.spec.cron,
        # Also for a paused pipeline: its ticks show that it is paused.
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Advances {launch.name} on the current hour.",
        tags={PIPELINE_TAG: launch.name},
    )
    def tick(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        current_run.end_unwanted(context.instance, launch.name, launch.spec)
        free = free_to_advance(context.instance, launch.name, launch.spec)
        if reason := free.hold or idle_reason(context.instance, launch.name, launch.spec, free):
            return dg.SkipReason(reason)
        # Dagster allows a tick only partitions up to its scheduled time: a late tick runs for the hour of that time.
        return free.request(*hour_of(hours, context.scheduled_execution_time))

    return tick
