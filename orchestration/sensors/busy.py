"""Why no run of a pipeline should start by itself now: it is paused, or one is under way already.

The commit makes two runs at once safe; one at a time makes them useful.
"""

from __future__ import annotations

import dagster as dg

from jobs.spec.pipeline import PipelineSpec
from orchestration.names import BACKFILL_TAG, PIPELINE_TAG, landing_key, table_key

_UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def paused_reason(name: str, spec: PipelineSpec) -> str | None:
    """Why nothing of the pipeline starts by itself; None where it may."""
    return f"{name} is paused (`paused: true` in its file)" if spec.paused else None


def hold_reason(instance: dg.DagsterInstance, name: str, spec: PipelineSpec) -> str | None:
    """Why the pipeline should not be advanced now by a schedule or a sensor; None where it may.

    It goes on beside a backfill, which may take hours: pools keep the two apart, table by table.
    """
    return paused_reason(name, spec) or busy_reason(instance, name, spec, replays=False)


def busy_reason(instance: dg.DagsterInstance, name: str, spec: PipelineSpec, *, replays: bool = True) -> str | None:
    """Which run is at work on the pipeline's tables, or will be; None where there is none.

    Args:
        replays: backfills count too.
    """
    # A run that was launched on assets by hand, or as a backfill, has no tag of ours.
    keys = {landing_key(name), *(table_key(table) for table in spec.tables)}
    for run in instance.get_runs(dg.RunsFilter(statuses=_UNDER_WAY)):
        if not replays and BACKFILL_TAG in run.tags:
            continue
        if run.tags.get(PIPELINE_TAG) == name or keys & set(run.asset_selection or ()):
            return f"run {run.run_id[:8]} of {name} is {run.status.value.lower()}"
    return None
