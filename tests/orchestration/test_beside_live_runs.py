"""A real Dagster with its daemon: a schedule goes on while a backfill replays, and neither harms the other."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from orchestration.cli.instance import SETTINGS
from resources.connections import Connections
from resources.local.ports import free_port
from tests.kit.dagster_dev import ask, running
from tests.kit.flow import Flow, rows
from tests.kit.model import expected
from tests.kit.records import bootstrap, produce, random_changes
from tests.kit.waiting import until

Topic = Callable[..., str]

_LAUNCH = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
_STATE = "query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } } }"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """DAGSTER_HOME with the shipped settings."""
    folder = tmp_path / "dagster"
    folder.mkdir()
    shutil.copyfile(SETTINGS, folder / "dagster.yaml")
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    return folder


def _program(flow: Flow, folder: Path) -> Path:
    """The code location: the flow's definitions."""
    (folder / "flow.json").write_text(json.dumps({"name": flow.name, "spec": flow.spec_document}))
    file = folder / "location.py"
    file.write_text(
        "import json\nfrom pathlib import Path\n"
        "from jobs.spec.pipeline import PipelineSpec\nfrom orchestration.components import KafkaPipeline\n"
        "from orchestration.definitions import with_shared\n"
        "given = json.loads(Path(__file__).with_name('flow.json').read_text())\n"
        "spec = PipelineSpec.model_validate(given['spec'])\n"
        "defs = with_shared(KafkaPipeline(given['name'], spec).definitions())\n"
    )
    return file


@pytest.mark.slow
def test_a_backfill_beside_the_schedule(
    stack: Path, connections: Connections, topic: Topic, home: Path, tmp_path: Path
) -> None:
    flow = Flow(topic(partitions=2), ["upsert_delete"], max_records=100)
    flow.overrides |= {"cron": "* * * * *", "batch": {"max_records": 100, "max_batches": 2}}
    records = random_changes(seed=7, count=300, keys=60, partitions=2)
    produce(bootstrap(connections), flow.topic, records[:150])
    table = dg.AssetKey(["iceberg", *flow.table("upsert_delete").split(".")])
    command = [sys.executable, "-m", "dagster", "dev", "-f", str(_program(flow, tmp_path)), "--host", "127.0.0.1"]
    with (
        dg.DagsterInstance.from_config(str(home)) as instance,
        running(command, free_port(()), {"BATCHMERGE_HOME": str(stack)}, tmp_path / "log") as address,
    ):

        def live(*statuses: dg.DagsterRunStatus) -> list[dg.DagsterRun]:
            every = instance.get_runs(dg.RunsFilter(job_name=flow.name, statuses=list(statuses)))
            return [run for run in every if "dagster/backfill" not in run.tags]

        until(lambda: live(dg.DagsterRunStatus.SUCCESS), what="live run")
        # While a live run is at work, so that they meet: the schedule starts one only where something is new.
        produce(bootstrap(connections), flow.topic, records[150:220])
        at_work = until(lambda: live(dg.DagsterRunStatus.STARTED), what="second live run")
        assert isinstance(at_work, list)
        now = datetime.now(UTC)
        hours = [(now - timedelta(hours=h)).strftime("%Y-%m-%d-%H:00") for h in (1, 0)]
        selection = [{"path": ["landing", flow.name]}, {"path": list(table.path)}]
        asked = ask(address, _LAUNCH, {"params": {"assetSelection": selection, "partitionNames": hours}})
        backfill = asked["launchPartitionBackfill"]["backfillId"]
        produce(bootstrap(connections), flow.topic, records[220:])

        def state() -> str:
            return str(ask(address, _STATE, {"id": backfill})["partitionBackfillOrError"]["status"])

        until(lambda: "COMPLETED" in state() or "FAILED" in state(), what="end of the backfill")
        assert state() == "COMPLETED_SUCCESS"
        end = flow.pipeline(connections).topic_state().stable
        until(lambda: flow.pipeline(connections).destinations()[0].committed().offsets == end, what="last live run")  # type: ignore[union-attr]
        until(lambda: not live(dg.DagsterRunStatus.STARTED), what="end of the live runs")

        runs = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]))
        assert runs == []
        (replay,) = instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill}))
        shown = instance.get_records_for_run(replay.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION).records
        assert shown
        assert all("replay of" in r.event_log_entry.asset_materialization.metadata for r in shown)  # type: ignore[union-attr]
        by_live = {run.run_id for run in live(dg.DagsterRunStatus.SUCCESS)}

    assert rows(connections, flow.table("upsert_delete")) == expected(records, "upsert_delete")
    pipeline = flow.pipeline(connections)
    known = pipeline.intermediate.landed()
    # Only live runs have landed and moved offsets: batch after batch, without a gap.
    assert known.complete
    landed = known.batches
    assert [b.number for b in landed] == list(range(1, len(landed) + 1))
    snapshots = pipeline.intermediate.catalog.require(pipeline.intermediate.identifier).metadata.snapshots
    summaries = {s.snapshot_id: s.summary.additional_properties for s in snapshots if s.summary}
    assert {summaries[b.snapshot_id]["batchmerge.run-id"] for b in landed} <= by_live
    committed = pipeline.destinations()[0].committed()
    assert committed
    assert committed.commit_id == landed[-1].batch.commit_id
