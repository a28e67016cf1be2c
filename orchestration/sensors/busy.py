"""Is a run of a pipeline waiting or running? The commit makes two at once safe; one at a time makes them useful."""

from __future__ import annotations

import dagster as dg

from orchestration.names import PIPELINE_TAG

_UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def busy_reason(instance: dg.DagsterInstance, pipeline: str) -> str | None:
    """Why no run of the pipeline should be started now; None where one may."""
    runs = instance.get_runs(dg.RunsFilter(statuses=_UNDER_WAY, tags={PIPELINE_TAG: pipeline}), limit=1)
    if not runs:
        return None
    return f"run {runs[0].run_id[:8]} of {pipeline} is {runs[0].status.value.lower()}"
