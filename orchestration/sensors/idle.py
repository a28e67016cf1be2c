"""Is there anything for a scheduled run to do? A run costs seconds of a processor and rows in Dagster's database."""

from __future__ import annotations

import hashlib
import time

import dagster as dg

from jobs.spec.pipeline import Freshness, PipelineSpec
from orchestration.dead_runs import name_of
from orchestration.names import FILE_TAG, LANDED_TAG, LEFT_OUT_TAG, PIPELINE_TAG
from orchestration.sensors.lag import look_at
from resources.errors import BatchmergeError

_FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
# Seconds until a run looks at everything again, also at what others may have done to the tables.
_LONGEST = 3600.0


def file_hash(spec: PipelineSpec) -> str:
    """Changes with the pipeline file."""
    return hashlib.sha256(spec.model_dump_json().encode()).hexdigest()[:16]


def idle_reason(instance: dg.DagsterInstance, name: str, spec: PipelineSpec) -> str | None:
    """Why a run would find nothing to do; None where it might, or where that is unknown."""
    runs = instance.get_run_records(dg.RunsFilter(statuses=_FINISHED, tags={PIPELINE_TAG: name}), limit=1)
    if not runs or not settles(runs[0], spec, time.time()):
        return None
    try:
        seen = look_at(name, spec)
    except BatchmergeError:
        return None  # the run reports it
    # A batch that no run has landed, of a reset or a replay, has no offsets of its own.
    as_left = runs[0].dagster_run.tags.get(LANDED_TAG) == str(seen.batches)
    if seen.landing or seen.tables or not as_left:
        return None
    return f"nothing new since {name_of(runs[0].dagster_run)}"


def settles(record: dg.RunRecord, spec: PipelineSpec, now: float) -> bool:
    """Whether this run has left nothing behind but what is new in Kafka: all of the pipeline, as its file is now, not
    long ago."""
    run = record.dagster_run
    whole = not run.asset_selection and LEFT_OUT_TAG not in run.tags
    as_now = run.status == dg.DagsterRunStatus.SUCCESS and run.tags.get(FILE_TAG) == file_hash(spec)
    return whole and as_now and now - (record.end_time or 0.0) < again_after(spec.freshness)


def again_after(freshness: Freshness | None) -> float:
    """Dagster takes a table for stale that no run has looked at for longer than the file allows."""
    return min(_LONGEST, freshness.warn_minutes * 60 / 2) if freshness else _LONGEST
