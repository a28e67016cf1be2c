"""Is a run of a pipeline waiting or running? The commit makes two at once safe; one at a time makes them useful."""

from __future__ import annotations

import dagster as dg

from orchestration.names import PIPELINE_TAG, landing_key

_UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def busy_reason(instance: dg.DagsterInstance, pipeline: str) -> str | None:
    """Why no run of the pipeline should be started now; None where one may."""
    for run in instance.get_runs(dg.RunsFilter(statuses=_UNDER_WAY)):
        if run.tags.get(PIPELINE_TAG) == pipeline or _lands(run, pipeline):
            return f"run {run.run_id[:8]} of {pipeline} is {run.status.value.lower()}"
    return None


def _lands(run: dg.DagsterRun, pipeline: str) -> bool:
    """A run that was launched on assets by hand, or as a backfill, has no tag of ours."""
    return landing_key(pipeline) in (run.asset_selection or ())
