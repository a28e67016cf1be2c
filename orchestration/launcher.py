"""Starts runs, by a fork of a warm process or as Dagster does by itself, and reports dead ones to run monitoring.

The first run after the daemon's start, or after a reload, starts in the code server, while a warm process loads the
same definitions. So do all runs of a code server that may be on another machine, or that another interpreter serves.

Without this check a run whose code server was killed stays STARTED for `max_runtime_seconds`. Until then it holds its
tables' pools, and schedule and sensors wait for it.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import dagster as dg
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.remote_origin import (
    CodeLocationOrigin,
    GrpcServerCodeLocationOrigin,
    ManagedGrpcPythonEnvCodeLocationOrigin,
)
from dagster._core.remote_representation.code_location import GrpcServerCodeLocation
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._grpc.types import CanCancelExecutionRequest, CanCancelExecutionResult
from dagster._serdes import deserialize_value
from dagster_shared.error import DagsterError

from orchestration.names import LAUNCHER_TAG
from orchestration.runs.dead_runs import death_of
from orchestration.runs.run_process import end_leftovers, interrupt, process_state, process_tags
from orchestration.runs.run_queue import count_again
from orchestration.warm.client import WarmProcesses

# Seconds to wait after each try in which a code server did not answer: one that is only busy answers one of three.
_PAUSES = (2.0, 5.0, 0.0)
# Seconds that a code server has to answer one try.
_TIMEOUT = 10


class WatchedRunLauncher(dg.DefaultRunLauncher):
    """For `run_launcher` of `dagster.yaml`, beside `run_monitoring` and `run_retries`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._warm = WarmProcesses()

    def launch_run(self, context: LaunchRunContext) -> None:
        run_id = context.dagster_run.run_id
        self._instance.add_run_tags(run_id, process_tags(run_id, tag=LAUNCHER_TAG))
        pid = self._fork(context)
        if pid is None:
            super().launch_run(context)
        else:
            self._instance.add_run_tags(run_id, process_tags(run_id, pid))

    def _fork(self, context: LaunchRunContext) -> int | None:
        run, code = context.dagster_run, context.job_code_origin
        if context.workspace is None or run.remote_job_origin is None or code is None:
            return None
        location = run.remote_job_origin.repository_origin.code_location_origin
        if not _is_here(location):
            return None
        server = context.workspace.get_code_location(location.location_name)
        if not isinstance(server, GrpcServerCodeLocation):
            return None
        return self._warm.start_run(self._instance, code.repository_origin, server.server_id, run.run_id)

    def terminate(self, run_id: str) -> bool:
        run = self._instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            count_again(self._instance, run)
            if interrupt(self._instance, run):
                return True
        return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Whether the run's process is alive; if that is not known, whether the code server that started it knows it.

        Processes that a dead run left are ended, and its pools are freed at once.

        A code server that does not answer counts as dead: its runs are its children, and end with it. If one lives on,
        the next run beside it is as safe as any two runs at once.
        """
        health = self._health(run)
        if health.status == WorkerStatus.NOT_FOUND:
            count_again(self._instance, run)
        return health

    def _health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        if death := death_of(self._instance, run):
            end_leftovers(run)
            self._instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
            return CheckRunHealthResult(WorkerStatus.NOT_FOUND, f"its {death}")
        if process_state(run) == "alive" or GRPC_INFO_TAG not in run.tags:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        for pause in _PAUSES:
            try:
                known = self._code_server_knows(run.run_id)
            except DagsterError:
                time.sleep(pause)
            else:
                return CheckRunHealthResult(
                    WorkerStatus.RUNNING if known else WorkerStatus.NOT_FOUND,
                    "" if known else "its code server does not know the run: it was restarted",
                )
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "its code server does not answer")

    def _code_server_knows(self, run_id: str) -> bool:
        client = self._get_grpc_client_for_termination(run_id)  # type: ignore[no-untyped-call]
        if client is None:
            return False
        answer = client.can_cancel_execution(CanCancelExecutionRequest(run_id=run_id), timeout=_TIMEOUT)
        return deserialize_value(answer, CanCancelExecutionResult).can_cancel


def _is_here(location: CodeLocationOrigin) -> bool:
    """Whether its code server surely shares this machine and this environment: the daemon, or `dagster dev`, has
    started it."""
    started_by_us = isinstance(location, GrpcServerCodeLocationOrigin) and location.socket is not None
    return sys.platform == "linux" and (started_by_us or isinstance(location, ManagedGrpcPythonEnvCodeLocationOrigin))
