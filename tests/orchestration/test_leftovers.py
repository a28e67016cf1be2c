"""What a run that is over leaves: processes of its steps, and runs that nobody starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import dagster as dg
import psutil
import pytest

from orchestration.names import PROCESS_TAG
from orchestration.runs.run_process import end_leftovers, process_tags
from tests.kit.processes import lives

# A session's leader with a child in the session, as a forked run has its steps; it prints the child's id.
_SESSION = "import os, time; child = os.fork(); print(child, flush=True) if child else None; time.sleep(600)"


@pytest.fixture
def session() -> Iterator[tuple[psutil.Process, psutil.Process]]:
    """The leader of a session, and another process of it."""
    command = [sys.executable, "-c", _SESSION]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True) as leader:
        assert leader.stdout
        both = psutil.Process(leader.pid), psutil.Process(int(leader.stdout.readline()))
        try:
            yield both
        finally:
            for one in filter(lives, both):
                one.kill()


def test_steps_of_a_dead_run_are_ended(session: tuple[psutil.Process, psutil.Process]) -> None:
    leader, step = session
    run = dg.DagsterRun("p", "run-1", tags=process_tags("run-1", leader.pid))
    leader.kill()
    leader.wait()
    assert end_leftovers(run) == 1
    assert not lives(step)


@pytest.mark.parametrize("before", ["another process had this id", "the machine was restarted"])
def test_processes_of_others_stay(before: str, session: tuple[psutil.Process, psutil.Process]) -> None:
    """The id of a dead run's process is that of somebody else's session by now."""
    leader, step = session
    host, pid, start, run_id = process_tags("run-1", leader.pid)[PROCESS_TAG].split(" ")
    ticks, boot = start.split("@")
    start = f"{int(ticks) - 1}@{boot}" if before.startswith("another") else f"{ticks}@00000000"
    run = dg.DagsterRun("p", "run-1", tags={PROCESS_TAG: f"{host} {pid} {start} {run_id}"})
    assert end_leftovers(run) == 0
    assert lives(leader)
    assert lives(step)
