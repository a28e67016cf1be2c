"""Do the schedules and sensors of a pipeline tick, and without an error? Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from jobs.destinations.registry import kind_of
from jobs.spec.pipeline import PipelineSpec
from orchestration.names import continuous_job, maintenance_job
from orchestration.status.dagster_answers import DagsterState

# A sensor without a tick for this long does not tick: each is asked for one every 30 s, or more often.
_SILENT = timedelta(minutes=5)


def tick_problems(name: str, spec: PipelineSpec, state: DagsterState, now: datetime) -> list[str]:
    """A line for each schedule and sensor of the pipeline that should tick and does not, or whose last tick failed."""
    found = list[str]()
    for instigator, missed in _ticking(name, spec, now):
        tick = state.ticks.get(instigator)
        if tick is None or not state.daemon or instigator in state.stopped:
            continue
        if tick.at < missed:
            why = "its code location is perhaps not loaded: Dagster's Deployment page says so"
            found.append(f"{instigator} has not ticked since {tick.at:%Y-%m-%d %H:%M} UTC: {why}")
        elif tick.problem:
            where = "its page in Dagster has the traceback"
            found.append(f"{instigator}: the tick of {tick.at:%H:%M:%S} UTC failed ({tick.problem}): {where}")
    return found


def _ticking(name: str, spec: PipelineSpec, now: datetime) -> Iterator[tuple[str, datetime]]:
    """The schedules and sensors that Dagster runs by default, each with the time since when it has surely ticked."""
    if spec.interval:
        yield continuous_job(name), now - _SILENT
    else:
        yield f"{name}_schedule", _last_but_one(spec.cron, now)
    if spec.trigger:
        yield f"{name}_lag", now - _SILENT
    if spec.maintenance.enabled:
        yield f"{maintenance_job(name)}_schedule", _last_but_one(spec.maintenance.cron, now)
    if not spec.many_tables:
        kinds = {table.kind for table in spec.tables if kind_of(table).capabilities.leases}
        yield from ((f"{name}_{kind}_state", now - _SILENT) for kind in sorted(kinds))


def _last_but_one(cron: str, now: datetime) -> datetime:
    """The last time may be a moment ago, or of a schedule that was changed since."""
    from croniter import croniter

    times = croniter(cron, now)
    times.get_prev()
    found: datetime = times.get_prev(datetime)
    return found.astimezone(UTC)
