"""Starts runs in their code server, as Dagster does by itself, and tells run monitoring which of them died with it.

Without this a run whose code server was killed stays "started" for `max_runtime_seconds`; until then its tables' pools
are taken, and schedule and sensors wait for it.
"""

from __future__ import annotations

import json
import time

import dagster as dg
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._grpc.client import DagsterGrpcClient
from dagster._grpc.types import CanCancelExecutionRequest, CanCancelExecutionResult
from dagster._serdes import deserialize_value
from dagster_shared.error import DagsterError

from orchestration.run_process import end_leftovers, fate

# A code server that is only busy answers one of these.
_PAUSES, _TIMEOUT = (2.0, 5.0, 0.0), 10


class WatchedRunLauncher(dg.DefaultRunLauncher):
    """For `run_launcher` of `dagster.yaml`, beside `run_monitoring` and `run_retries`."""

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Whether the run's process lives, or where that is not known (yet), the code server that started it has it.

        What is left of a dead run is ended, so that the pools that it held are free at once.

        A server that does not answer is taken for dead: its runs are its children, and end with it. Should one live on,
        the next run beside it is as safe as any two at once.
        """
        known_fate = fate(run.tags, run.run_id)
        if known_fate == "ended":
            end_leftovers(run.run_id)
            self._instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
            return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "its process has ended")
        if known_fate == "alive" or GRPC_INFO_TAG not in run.tags:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        server = json.loads(run.tags[GRPC_INFO_TAG])
        for pause in _PAUSES:
            try:
                known = _knows(server, run.run_id)
            except DagsterError:
                time.sleep(pause)
            else:
                return CheckRunHealthResult(
                    WorkerStatus.RUNNING if known else WorkerStatus.NOT_FOUND,
                    "" if known else "its code server does not know the run: it was restarted",
                )
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "its code server does not answer")


def _knows(server: dict[str, str | int | bool], run_id: str) -> bool:
    client = DagsterGrpcClient(
        host=str(server["host"]),
        port=int(server["port"]) if "port" in server else None,
        socket=str(server["socket"]) if "socket" in server else None,
        use_ssl=bool(server.get("use_ssl")),
    )
    answer = client.can_cancel_execution(CanCancelExecutionRequest(run_id=run_id), timeout=_TIMEOUT)
    return deserialize_value(answer, CanCancelExecutionResult).can_cancel
