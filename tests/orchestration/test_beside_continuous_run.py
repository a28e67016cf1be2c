"""What people do beside a run that commits every second: replays, a backfill of hours, maintenance; and a check that
breaks, which stops one table alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

import dagster as dg
import pyarrow as pa
import pytest

from orchestration.names import continuous_op, table_key
from resources.connections import Connections
from tests.kit.continuous import STATUS, ContinuousRun, continuous_run
from tests.kit.engine import catalog
from tests.kit.flow import Flow, rows
from tests.kit.model import expected
from tests.kit.project import Project
from tests.kit.records import Record, bootstrap, produce, random_changes

MODES = ["upsert", "upsert_delete"]


@pytest.fixture
def flow(topic: Callable[..., str]) -> Flow:
    return Flow(topic(), MODES, overrides={"interval": "1s"})


@pytest.fixture
def project(stack: Path, tmp_path: Path) -> Project:
    return Project(tmp_path, stack, stack / "connections.yaml")


@pytest.fixture
def dagster(flow: Flow, project: Project) -> Iterator[ContinuousRun]:
    with continuous_run(project.folder, project.connections, flow.name, flow.spec_document) as one:
        yield one


class Source:
    """Records that keep coming while somebody works beside the run."""

    def __init__(self, flow: Flow, connections: Connections) -> None:
        self._topic, self._bootstrap = flow.topic, bootstrap(connections)
        self._records = random_changes(seed=11, count=4000, keys=60, partitions=1)
        self.sent: list[Record] = []

    def send(self, count: int) -> None:
        more = self._records[len(self.sent) : len(self.sent) + count]
        assert more, "no records are left"
        produce(self._bootstrap, self._topic, more)
        self.sent.extend(more)

    def flow_during(self, work: Callable[[], None]) -> None:
        over = Event()

        def keep_sending() -> None:
            while not over.wait(0.5):
                self.send(5)

        thread = Thread(target=keep_sending)
        thread.start()
        try:
            work()
        finally:
            over.set()
            thread.join()


@pytest.mark.slow
def test_replays_and_maintenance_beside_it(
    dagster: ContinuousRun, flow: Flow, project: Project, connections: Connections
) -> None:
    source, began = Source(flow, connections), datetime.now(UTC)

    def is_there() -> bool:
        return all(rows_or_none(connections, flow.table(mode)) == expected(source.sent, mode) for mode in MODES)

    source.send(200)
    started = dagster.started()
    dagster.until(is_there)

    def work() -> None:
        for arguments in (
            ["replay", flow.name, "--from", f"{began:%Y-%m-%dT%H}"],
            ["maintain", flow.name],
            ["replay", flow.name, "--from", f"{began:%Y-%m-%d}"],
            ["replay", flow.name, "--batches", "1-3"],
            ["replay", flow.name, "--kafka-from", f"{began:%Y-%m-%d}"],
            ["dead-letters", "retry", flow.name],
        ):
            code, output = project.call(*arguments)
            assert code == 0, f"{arguments}: {output}"

    source.flow_during(work)
    dagster.until(is_there)
    (still,) = dagster.runs(STATUS.STARTED)
    assert still.run_id == started.run_id, "nothing that was done beside it has ended it"
    names = [run.job_name for run in dagster.instance.get_runs(dg.RunsFilter(statuses=[STATUS.SUCCESS]))]
    assert names.count(f"{flow.name}_replay") == 2
    assert names.count(f"{flow.name}_retry") == 1
    code, output = project.call("verify", flow.name)
    assert code == 0, output


@pytest.mark.slow
def test_a_check_that_breaks_stops_its_table_alone(
    dagster: ContinuousRun, flow: Flow, connections: Connections
) -> None:
    source = Source(flow, connections)
    (upserts, _), name = flow.spec.tables, flow.table("upsert")
    source.send(100)
    first = dagster.started()
    dagster.until(lambda: rows_or_none(connections, name) == expected(source.sent, "upsert"))
    table = catalog(connections).require(name)
    row = table.scan().to_arrow().slice(0, 1)
    table.append(pa.concat_tables([row, row]))

    other = flow.table("upsert_delete")

    def is_there() -> bool:
        return rows_or_none(connections, other) == expected(source.sent, "upsert_delete")

    def broken() -> bool:
        """Whether the run's step has failed of it; changes of other keys than the doubled one may come first."""
        if is_there():
            source.send(20)
        failed = dagster.instance.all_logs(first.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
        return any(
            entry.dagster_event
            and entry.dagster_event.step_key == continuous_op(flow.name, table_key(upserts))
            and "keys_unique" in str(entry.dagster_event.step_failure_data.user_failure_data)
            for entry in failed
        )

    dagster.until(broken)
    # The table without a doubled key goes on.
    dagster.until(is_there)


def rows_or_none(connections: Connections, table: str) -> object:
    found = catalog(connections).load(table)
    return rows(connections, table) if found and found.current_snapshot() else None
