"""The sensor that keeps a continuous run: starts one if there is none, and replaces it when it is time."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import dagster as dg

from jobs.spec.pipeline import PipelineSpec
from orchestration.continuous.decision import (
    ContinuousCursor,
    Newest,
    State,
    reason_to_start,
    remember,
    steps_that_wait,
)
from orchestration.names import (
    ASKED_AT_TAG,
    CONTINUOUS_TAG,
    FILE_TAG,
    PIPELINE_TAG,
    continuous_op,
    continuous_tables,
    file_hash,
    landing_key,
    table_key,
)
from orchestration.pauses import read_pauses
from orchestration.runs import current_run
from orchestration.runs.dead_runs import end_dead_runs
from orchestration.runs.runs_about import NOT_BEGUN
from orchestration.sensors.busy import paused_reason
from orchestration.step_failures import failure_text

# The daemon looks at its sensors every five seconds, and not more often.
_EVERY = 5
_STATUS = dg.DagsterRunStatus
_WAITS = (_STATUS.QUEUED, *NOT_BEGUN)
_ENDS = {dg.DagsterEventType.STEP_SUCCESS, dg.DagsterEventType.STEP_FAILURE}
# A person has cancelled the run: none of its steps has failed.
_CANCELLED = (_STATUS.CANCELED, _STATUS.CANCELING)

_ENDED: dict[dg.DagsterRunStatus, State] = {
    _STATUS.SUCCESS: "ended",
    _STATUS.FAILURE: "died",
    _STATUS.CANCELED: "cancelled",
}
_SAYS: dict[State, str] = {
    "waits": "is about to begin",
    "runs": "runs",
    "ended": "ended soon after its start; another one is started after a pause",
    "died": "died soon after its start; another one is started after a pause",
    "cancelled": "was cancelled",
}


def continuous_sensor(name: str, spec: PipelineSpec, job: dg.JobDefinition) -> dg.SensorDefinition:
    """Named as the job. Without Dagster's daemon it does not tick, and there is no continuous run."""

    @dg.sensor(
        name=job.name,
        job=job,
        minimum_interval_seconds=_EVERY,
        # Also for a paused pipeline: its ticks show that it is paused.
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Keeps a run that commits {name} every {spec.interval}.",
        tags={PIPELINE_TAG: name},
    )
    def keep(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return tick(context.instance, name, spec, context.cursor)

    return keep


def tick(instance: dg.DagsterInstance, name: str, spec: PipelineSpec, text: str | None) -> dg.SensorResult:
    """One tick, with the cursor that the last one has left."""
    if paused := paused_reason(read_pauses(instance, name, spec), spec):
        current_run.end_unwanted(instance, name, spec)
        return dg.SensorResult(skip_reason=paused, cursor=text)
    end_dead_runs(instance)
    newest = _newest(instance, name)
    now = time.time()
    file = file_hash(spec)
    cursor = remember(ContinuousCursor.read(text), newest, now)
    reason = reason_to_start(cursor, newest, file, now)
    if reason is None:
        of_run = "" if newest is None else f"run {newest.run[:8]} {_SAYS[newest.state]}"
        return dg.SensorResult(skip_reason=of_run, cursor=cursor.model_dump_json())
    keys = [landing_key(name), *(table_key(table) for table in continuous_tables(spec))]
    waiting = steps_that_wait(cursor, [continuous_op(name, key) for key in keys], now)
    config = {s: {"config": {"not_before": f.not_before, "because": f.text}} for s, f in waiting.items()}
    tags = {ASKED_AT_TAG: datetime.fromtimestamp(now, UTC).isoformat(), "batchmerge/reason": reason}
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_config={"ops": config} if config else {}, tags=tags)],
        cursor=cursor.model_dump_json(),
    )


def _newest(instance: dg.DagsterInstance, name: str) -> Newest | None:
    records = instance.get_run_records(dg.RunsFilter(tags={CONTINUOUS_TAG: name}), limit=1)
    if not records:
        return None
    record = records[0]
    run = record.dagster_run
    state: State = "waits" if run.status in _WAITS else "runs"
    if run.is_finished:
        state = _ENDED[run.status]
    ends = [
        entry.dagster_event
        for entry in instance.all_logs(run.run_id, of_type=_ENDS)
        if entry.dagster_event and run.status not in _CANCELLED
    ]
    return Newest(
        run.run_id,
        state,
        record.start_time,
        record.end_time,
        run.tags.get(FILE_TAG, ""),
        failures={str(event.step_key): failure_text(event) for event in ends if event.is_step_failure},
        partly=any(event.is_step_success for event in ends),
    )
