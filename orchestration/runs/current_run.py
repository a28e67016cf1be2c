"""Which continuous run of a pipeline is current: the newest that has begun. Kept in Dagster's instance.

Runs are compared by their places in Dagster's table of runs. Times would not do: a clock may be set back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from orchestration.names import CONTINUOUS_TAG, FILE_TAG, file_hash
from orchestration.sensors.cursor import SensorCursor

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec

_PREFIX = "batchmerge/continuous/"


class _Current(SensorCursor):
    """The current run, and whether its pipeline file does not want it any more."""

    run: str = ""
    ended: bool = False


def begin(instance: dg.DagsterInstance, pipeline: str, run_id: str) -> None:
    """Makes this run the current one: older runs end.

    Two processes may do this at once: commits are exactly once without it.
    """
    if reason_to_end(instance, pipeline, run_id) is None:
        _store(instance, pipeline, _Current(run=run_id))


def reason_to_end(instance: dg.DagsterInstance, pipeline: str, run_id: str) -> str | None:
    """Why this run ends; None: it goes on."""
    current = _stored(instance, pipeline)
    if current.run == run_id:
        return "the pipeline file does not want it any more" if current.ended else None
    records = instance.get_run_records(dg.RunsFilter(run_ids=[current.run, run_id]))
    places = {record.dagster_run.run_id: record.storage_id for record in records}
    # A current run that was deleted has no place.
    return "a newer run takes over" if places.get(current.run, 0) > places.get(run_id, 0) else None


def end_unwanted(instance: dg.DagsterInstance, pipeline: str, spec: PipelineSpec) -> None:
    """Ends the continuous run of an earlier file, if this one has no `interval`, or pauses the pipeline. Every schedule
    and sensor asks for it first: the continuous run's own sensor may be gone.

    A run of a file that pauses the pipeline was launched by hand, and goes on.
    """
    if spec.interval and not spec.paused:
        return
    stays = dg.RunsFilter(tags={CONTINUOUS_TAG: pipeline}, statuses=[dg.DagsterRunStatus.STARTED])
    for run in instance.get_runs(stays):
        if run.tags.get(FILE_TAG) != file_hash(spec) and reason_to_end(instance, pipeline, run.run_id) is None:
            _store(instance, pipeline, _Current(run=run.run_id, ended=True))


def _stored(instance: dg.DagsterInstance, pipeline: str) -> _Current:
    name = _PREFIX + pipeline
    return _Current.read(instance.daemon_cursor_storage.get_cursor_values({name}).get(name))


def _store(instance: dg.DagsterInstance, pipeline: str, current: _Current) -> None:
    instance.daemon_cursor_storage.set_cursor_values({_PREFIX + pipeline: current.model_dump_json()})
