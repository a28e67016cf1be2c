"""Is there anything for a scheduled run to do? A run costs seconds of a processor and rows in Dagster's database."""

from __future__ import annotations

import time

import dagster as dg

from jobs.spec.pipeline import Freshness, PipelineSpec
from orchestration.names import FILE_TAG, LANDED_TAG, LEFT_OUT_TAG, PIPELINE_TAG, file_hash
from orchestration.runs.dead_runs import name_of
from orchestration.sensors.lag import look_at
from resources.errors import BatchmergeError

_FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
# Seconds after which a run starts also without new records: others may have changed the tables.
_LONGEST = 3600.0


def idle_reason(instance: dg.DagsterInstance, name: str, spec: PipelineSpec) -> str | None:
    """Why a run would find nothing to do; None: it may find something, or this is unknown."""
    runs = instance.get_run_records(dg.RunsFilter(statuses=_FINISHED, tags={PIPELINE_TAG: name}), limit=1)
    if not runs or not settles(runs[0], spec, time.time()):
        return None
    try:
        seen = look_at(name, spec)
    except BatchmergeError:
        return None  # the run reports it
    # A reset, or a replay from Kafka, lands a batch without new offsets: compare batch numbers too.
    as_left = runs[0].dagster_run.tags.get(LANDED_TAG) == str(seen.batches)
    if seen.landing or seen.tables or not as_left:
        return None
    return f"nothing new since {name_of(runs[0].dagster_run)}"


def settles(record: dg.RunRecord, spec: PipelineSpec, now: float) -> bool:
    """Whether only new records are left to do after this run: it has run the whole pipeline, by its current file, with
    success, and not long ago."""
    run = record.dagster_run
    whole = not run.asset_selection and LEFT_OUT_TAG not in run.tags
    as_now = run.status == dg.DagsterRunStatus.SUCCESS and run.tags.get(FILE_TAG) == file_hash(spec)
    return whole and as_now and now - (record.end_time or 0.0) < again_after(spec.freshness)


def again_after(freshness: Freshness | None) -> float:
    """Seconds after which to run also without new records: with `freshness` Dagster would else show tables as stale."""
    return min(_LONGEST, freshness.warn_minutes * 60 / 2) if freshness else _LONGEST
