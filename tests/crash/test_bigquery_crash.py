"""kill -9 of BigQuery, and of a run in step after step.

Kills at every boundary are in `test_every_boundary.py`, sleepers and two runs at once in `test_two_runs.py`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from jobs.connections_file import CONNECTIONS, load_connections
from jobs.destinations.bigquery.kind import KIND
from resources.connections import Connections
from resources.local import stack as local_stack
from tests.kit.bigquery import bigquery_flow, destination, loads, service
from tests.kit.connections_file import connection_entries, write_connections
from tests.kit.driven_log import DrivenLog
from tests.kit.processes import asleep, end_of

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("bigquery")]

# An append that is applied twice, or not at all, shows at once; the modes with a key go through the same steps.
MODES = ["append"]


@pytest.fixture(scope="module")
def log(bigquery: Path, module_topic: Callable[..., str]) -> DrivenLog:
    """It grows from test to test, so that each kill also meets what the ones before it left."""
    # Rows with their offset are not the landed ones: tasks write files of them.
    flow = bigquery_flow(module_topic(partitions=2), MODES, max_records=60, metadata_columns=["offset"])
    return DrivenLog(flow, load_connections(bigquery / "connections.yaml"), bigquery)


@pytest.fixture(scope="module")
def landed_log(bigquery: Path, module_topic: Callable[..., str]) -> DrivenLog:
    flow = bigquery_flow(module_topic(partitions=2), ["append", "upsert_delete"], max_records=60)
    return DrivenLog(flow, load_connections(bigquery / "connections.yaml"), bigquery, bad=0)


@pytest.mark.parametrize("point", ["bigquery.begun", "bigquery.loaded"])
def test_killed_run_that_loads_landed_files(point: str, landed_log: DrivenLog) -> None:
    """One load job of all files; the next run finds it by its id and takes over the range in its labels."""
    landed_log.grow()
    landed_log.kill(point)
    landed_log.grow()
    landed_log.finish(point)
    assert all(job.source_uris for job in loads(landed_log.connections, landed_log.flow))


@pytest.mark.parametrize("point", ["bigquery.staged", "bigquery.loaded"])
def test_killed_run_that_copies_landed_files(
    point: str, bigquery: Path, module_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BigQuery reads a folder, and not the lake; the next run copies the files again, or finds the load."""
    apart = {**connection_entries(bigquery)["bigquery"], "reads": [], "staging": f"file://{tmp_path}/staging"}
    file = write_connections(bigquery, tmp_path, bigquery=apart)
    monkeypatch.setenv(CONNECTIONS, str(file))
    flow = bigquery_flow(module_topic(partitions=2), ["append", "upsert_delete"], max_records=60)
    log = DrivenLog(flow, load_connections(file), bigquery, bad=0)
    log.grow()
    log.kill(point)
    log.grow()
    log.finish(point)
    loaded = [uri for job in loads(log.connections, flow) for uri in job.source_uris]
    assert loaded
    assert all(uri.startswith(f"{apart['staging']}/{flow.name}/landed-") for uri in loaded)


def test_killed_again_and_again(log: DrivenLog) -> None:
    """One flush, killed one step later each time."""
    log.grow()
    for point in KIND.failpoints:
        code, output = log.flow.run(log.home, failpoint=point)
        assert code in (0, -signal.SIGKILL), output
    log.finish("again and again")


@pytest.mark.parametrize("point", ["bigquery.staged", "bigquery.loaded", "bigquery.submitted", "bigquery.merged"])
def test_killed_bigquery(point: str, log: DrivenLog) -> None:
    """The service dies while the run is between two of its steps, and comes back before the run goes on."""
    log.grow()
    run = log.start(point)
    with asleep(run):
        _restart_emulator(log.home)
    end_of(run)
    log.finish(point)


def test_killed_bigquery_in_the_middle_of_a_merge(log: DrivenLog) -> None:
    """The service dies with jobs running; what became of them is found out when it starts again."""
    for pause in (0.0, 0.05, 0.15):
        log.grow()
        run = log.start("bigquery.loaded")
        with asleep(run):
            pass
        time.sleep(pause)
        _restart_emulator(log.home)
        end_of(run)
        log.finish(pause)


def _restart_emulator(stack: Path) -> None:
    pid = next(one.pid for one in local_stack.status(stack) if one.name == "bigquery")
    assert pid is not None
    process = psutil.Process(pid)
    process.kill()
    psutil.wait_procs([process], timeout=30)
    local_stack.up(stack, ["bigquery"], print)


def test_replay_that_dies_or_wakes_up_late(stack: Path, connections: Connections, topic: Callable[..., str]) -> None:
    """What it has read is old by the time it would write: it must find that a merge has come in between."""
    log = DrivenLog(bigquery_flow(topic(partitions=2), ["upsert_delete"], max_records=60), connections, stack)
    log.grow()
    log.run()
    point = "bigquery.replay-loaded"
    assert end_of(log.flow.start(stack, point, replay=(1, 2)))[0] == -signal.SIGKILL
    sleeper = log.flow.start(stack, f"{point}=stop", replay=(1, 2))
    with asleep(sleeper):
        log.grow()
        log.run()
    _, output = end_of(sleeper)
    assert "MergedBatches(" in output, output
    assert "another run" in output, output
    log.check("after the replay")


def test_nothing_is_left_in_the_staging_tables(log: DrivenLog, connections: Connections) -> None:
    log.grow()
    log.run()
    for mode in MODES:
        row = destination(log.flow, mode, connections).state.read()
        assert row is not None
        left = service(connections).read(f"SELECT COUNT(*) AS n FROM `{row.staging_table}`", {}, "test")
        assert left[0]["n"] == 0
        named = [t for t, _ in service(connections).tables("tests") if t.startswith(f"tests._{log.flow.name}_{mode}")]
        assert named == [row.staging_table]
