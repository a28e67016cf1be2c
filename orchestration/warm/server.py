"""The warm process: loads a code location's definitions once, then forks a run for each request.

Requests and answers are JSON, a line each, over a socket pair with the daemon. An empty request: no further run comes,
and the process ends after the last one. The end of the stream: the daemon has ended, and so do its runs.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from importlib.util import find_spec
from typing import Any, NoReturn

from dagster import DagsterInstance
from dagster._cli.api import _execute_run_command_body
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.definitions.repository_definition import RepositoryDefinition, RepositoryLoadData
from dagster._core.instance.ref import InstanceRef
from dagster._core.origin import RepositoryPythonOrigin
from dagster._serdes import deserialize_value
from dagster._utils.hosted_user_process import recon_repository_from_origin
from dagster._utils.interrupts import capture_interrupts, setup_interrupt_handlers

from jobs.destinations.registry import kinds
from orchestration.databases import close_databases, keep_databases_open
from orchestration.executor import PRELOAD
from orchestration.runs.run_process import RUN_VARIABLE
from orchestration.socket_wait import is_readable
from orchestration.warm.steps import die_with, serve_steps

# Seconds that runs have to end in order, after the daemon's end.
_PATIENCE = 10.0


def main() -> None:
    """Argument: the socket's descriptor. Standard input: the code location and the instance."""
    (descriptor,) = sys.argv[1:]
    loads = json.load(sys.stdin)
    with socket.socket(fileno=int(descriptor)) as control:
        _load(deserialize_value(loads["origin"], RepositoryPythonOrigin), loads["instance"])
        if (threads := len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 1) > 1:
            sys.exit(f"{threads} threads after loading: what is forked could hang")
        # A Ctrl-C or a service manager asks all processes at once. This one ends with the daemon, and last: were it
        # gone first, its runs would be killed instead of cancelled.
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_IGN)
        gc.collect()
        gc.freeze()  # pages stay shared with the runs
        control.sendall(b'{"ready": 1}\n')
        runs = _ForkedRuns()
        _serve(control, runs, loads["instance"])
    runs.end()


def _load(origin: RepositoryPythonOrigin, ref: str) -> None:
    keep_databases_open()
    # Import what an instance needs, and set the variables that Dagster gives to a code location.
    with DagsterInstance.from_ref(deserialize_value(ref, InstanceRef)) as instance:
        instance.inject_env_vars(None)
        instance.get_runs(limit=1)
        instance.event_log_storage.get_concurrency_keys()
    close_databases()
    definition = recon_repository_from_origin(origin).get_definition()
    for name in (*PRELOAD, *_destinations(definition)):
        importlib.import_module(name)
    for job in definition.get_all_jobs():
        job.asset_layer  # noqa: B018  built now, for all runs
    _remember(origin.code_pointer, definition)


def _destinations(definition: RepositoryDefinition) -> list[str]:
    """The modules that the kinds of these assets import when a table is opened or merged (`jobs.destinations.kind`)."""
    graph = definition.asset_graph
    used = {badge for key in graph.materializable_asset_keys for badge in graph.get(key).kinds}
    packages = [type(k).__module__.rpartition(".")[0] for k in kinds().values() if k.capabilities.asset_kinds <= used]
    parts = [f"{package}.{part}" for package in packages for part in ("destination", "merge", "read")]
    return [part for part in parts if find_spec(part)]


def _remember(pointer: Any, definition: RepositoryDefinition) -> None:
    """Gives the loaded definitions to runs and steps, which find their job by a pointer and would load all again.

    Not to a run that was planned with a state of components: Dagster names that state. The name of the code location,
    which it gives to all runs, changes nothing.
    """
    original = ReconstructableRepository.get_definition

    def get_definition(self: Any) -> RepositoryDefinition:
        data = self.repository_load_data or RepositoryLoadData()
        planned_with_nothing = data._replace(code_location_name=None) == RepositoryLoadData()
        return definition if self.pointer == pointer and planned_with_nothing else original(self)

    ReconstructableRepository.get_definition = get_definition  # type: ignore[method-assign]


class _ForkedRuns:
    """Process ids of the runs that were forked and have not ended."""

    def __init__(self) -> None:
        self._pids = set[int]()

    def add(self, pid: int) -> None:
        self._pids.add(pid)

    def reap(self) -> bool:
        """Reaps runs that have ended. Returns whether any is left."""
        for pid in list(self._pids):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._pids.discard(pid)
        return bool(self._pids)

    def end(self) -> None:
        """Interrupts the runs, so that they end as cancelled. Those that do not end in time die with this process."""
        for pid in self._pids:
            os.kill(pid, signal.SIGINT)
        ends = time.monotonic() + _PATIENCE
        while self.reap() and time.monotonic() < ends:
            time.sleep(0.1)


def _serve(control: socket.socket, runs: _ForkedRuns, ref: str) -> None:
    """Forks a run for each request, until the daemon has ended, or no more come and the last run has ended."""
    # Unbuffered: a line that was read ahead would not make the socket readable.
    requests, is_retired = control.makefile("rb", buffering=0), False
    while True:
        while not is_readable(control, 1.0):
            if not runs.reap() and is_retired:
                return
        line = requests.readline()
        if not line:
            return
        if not (request := json.loads(line)):
            is_retired = True
            continue
        warm = os.getpid()
        try:
            pid = os.fork()
        except OSError as problem:  # the machine has no memory or process left now; runs that are under way go on
            control.sendall(json.dumps({"problem": str(problem)}).encode() + b"\n")
            continue
        if pid == 0:
            requests.close()
            control.close()
            _run(request["run"], ref, warm)
        runs.add(pid)
        control.sendall(json.dumps({"pid": pid}).encode() + b"\n")


def _run(run_id: str, ref: str, warm: int) -> NoReturn:
    """The forked process of a run."""
    status = 1
    try:
        os.environ[RUN_VARIABLE] = run_id
        os.setsid()  # its steps are found by it, and a Ctrl-C for others does not reach it
        die_with(warm)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        serve_steps()
        setup_interrupt_handlers()
        with capture_interrupts(), DagsterInstance.from_ref(deserialize_value(ref, InstanceRef)) as instance:
            status = _execute_run_command_body(run_id, instance, lambda _event: None, True)
    except BaseException:
        traceback.print_exc()
    finally:
        close_databases()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
