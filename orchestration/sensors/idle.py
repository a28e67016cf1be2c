"""Is there anything for a scheduled run to do? A run costs seconds of a processor and rows in Dagster's database."""

from __future__ import annotations

import time

import dagster as dg

from jobs.spec.pipeline import Freshness, PipelineSpec
from orchestration.names import FILE_TAG, LANDED_TAG, PIPELINE_TAG, file_hash
from orchestration.runs.dead_runs import name_of
from orchestration.sensors.busy import Free
from orchestration.sensors.lag import look_at
from resources.errors import BatchmergeError

_FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
# Seconds after which a run starts also without new records: others may have changed the tables.
_LONGEST = 3600.0


def idle_reason(instance: dg.DagsterInstance, name: str, spec: PipelineSpec, free: Free) -> str | None:
    """Why a run of what is free would find nothing to do; None: it may find something, or this is unknown."""
    runs = instance.get_run_records(dg.RunsFilter(statuses=_FINISHED, tags={PIPELINE_TAG: name}), limit=1)
    if not runs or not settles(runs[0], spec, free, time.time()):
        return None
    try:
        seen = look_at(name, spec)
    except BatchmergeError:
        return None  # the run reports it
    # A reset, or a replay from Kafka, lands a batch without new offsets: compare batch numbers too.
    as_left = runs[0].dagster_run.tags.get(LANDED_TAG) == str(seen.batches)
    # A table that is left out stays behind, and no run would change that. The others had all at the end of that run.
    if seen.landing or (seen.tables and not free.left_out) or not as_left:
        return None
    return f"nothing new since {name_of(runs[0].dagster_run)}"


def settles(record: dg.RunRecord, spec: PipelineSpec, free: Free, now: float) -> bool:
    """Whether only new records are left to do after this run: it has run all that is free now (a table may be paused),
    by the pipeline's current file, with success, and not long ago."""
    run = record.dagster_run
    as_now = run.status == dg.DagsterRunStatus.SUCCESS and run.tags.get(FILE_TAG) == file_hash(spec)
    whole = as_now and free.is_what_was_free(run)
    return whole and now - (record.end_time or 0.0) < again_after(spec.freshness)


def again_after(freshness: Freshness | None) -> float:
    """Seconds after which to run also without new records: with `freshness` Dagster would else show tables as stale."""
    return min(_LONGEST, freshness.warn_minutes * 60 / 2) if freshness else _LONGEST
