"""For commands that write to tables outside of Dagster's runs: they begin when no run of the pipeline is under way."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

import dagster as dg

from jobs.connections_file import load_connections
from jobs.pipeline import Pipeline
from jobs.spec.pipeline import PipelineSpec
from orchestration.cli.instance import dagster_instance
from orchestration.cli.job_runs import end_dead
from orchestration.cli.progress import engine_log
from orchestration.daemon import daemon_runs
from orchestration.files import each_pipeline, pipeline_spec, split_name
from orchestration.pauses import read_pauses
from orchestration.pool_waits import in_the_way
from orchestration.sensors.busy import busy_reason, runs_of
from resources.errors import BatchmergeError, Unavailable

_LOG = logging.getLogger("batchmerge")
_SAY_EVERY = 60.0
T = TypeVar("T")


def each_when_idle(
    name: str, wait: bool, work: Callable[[Pipeline], T | None]
) -> tuple[list[T], list[BatchmergeError]]:
    """Does the work for each pipeline of that name when no run of it is under way.

    Raises:
        Unavailable: a run is, and is not to be waited for, or does not end by itself.
    """
    with engine_log(), dagster_instance() as instance:
        _wait_until_idle(instance, split_name(name)[0], pipeline_spec(name), wait)
    with engine_log():
        return each_pipeline(name, load_connections(), work)


def _wait_until_idle(instance: dg.DagsterInstance, pipeline: str, spec: PipelineSpec, wait: bool) -> None:
    end_dead(instance)
    began, said = time.monotonic(), -_SAY_EVERY
    while busy := busy_reason(instance, pipeline, spec):
        if not wait:
            raise in_the_way([busy])
        if spec.interval and not read_pauses(instance, pipeline, spec).whole:
            # It would not end, or another one would begin.
            raise Unavailable(busy, remedy=f"pause {pipeline}, then try again, then `batchmerge resume {pipeline}`")
        if _waits_for_a_daemon(instance, pipeline, spec):
            raise Unavailable(
                f"{busy}, and no Dagster daemon runs that would start it",
                where=f"pipeline {pipeline}",
                remedy=f"start the daemon, or cancel that run: `batchmerge restart {pipeline}`",
            )
        waited = time.monotonic() - began
        if waited - said >= _SAY_EVERY:
            said = waited
            _LOG.info("waiting for %.0f s: %s; `batchmerge restart %s` cancels it", waited, busy, pipeline)
        time.sleep(1)
        end_dead(instance)


def _waits_for_a_daemon(instance: dg.DagsterInstance, pipeline: str, spec: PipelineSpec) -> bool:
    """Whether all that is under way is queued, and nobody takes runs out of the queue."""
    under_way = runs_of(instance, pipeline, spec)
    queued = all(run.status == dg.DagsterRunStatus.QUEUED for run in under_way)
    return bool(under_way) and queued and not daemon_runs(instance)
