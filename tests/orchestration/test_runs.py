"""A pipeline's Dagster job against a real broker and Spark: what runs do, show, refuse and survive."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
import yaml

from jobs.maintenance.run import maintain_landing
from orchestration.cli.job_runs import run_job
from orchestration.current_hour import hour_of
from orchestration.open_lineage.dataset import Dataset
from orchestration.open_lineage.sender import Sender, TimeSpent
from resources.connections import Connections, IcebergConnection
from resources.iceberg import IcebergCatalog
from resources.local.ports import free_port
from tests.kit import left_out
from tests.kit.connections_file import write_connections
from tests.kit.flow import Flow, rows
from tests.kit.model import bad, expected
from tests.kit.records import bootstrap, produce, random_changes, upserts
from tests.kit.web import Handler, serving
from tests.orchestration.launching import advance, definitions, events

Topic = Callable[..., str]
NO_DELAY: dict[str, object] = {"retry": {"max_retries": 1, "delay_seconds": 0.05}}


def _hour(at: datetime) -> str:
    return at.strftime("%Y-%m-%d-%H:00")


def test_run_shows_what_it_did(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance, lineage: list[dict[str, Any]]
) -> None:
    flow = Flow(topic(partitions=2), ["upsert_delete"], max_records=300)
    records = random_changes(seed=1, count=500, keys=60, partitions=2)
    produce(bootstrap(connections), flow.topic, records)

    first = advance(instance, flow)
    second = advance(instance, flow, until_caught_up=True)

    assert first.success
    assert second.success
    assert rows(connections, flow.table("upsert_delete")) == expected(records, "upsert_delete")
    landed = [r.landing.metadata for r in (first, second)]
    assert [m["read"] for m in landed] == [300, 200]
    assert all(m["read"] == m["landed"] + m["quarantined"] + m["filtered"] for m in landed)
    assert sum(m["quarantined"] for m in landed) == bad(records) > 0
    assert landed[0]["offsets after"] == landed[1]["offsets before"]
    assert [m["lag"] for m in landed] == [200, 0]
    assert landed[0]["run id"] == first.run_id
    table = second.tables[0].metadata
    assert (table["batch before"], table["last batch"], table["lag"]) == (1, 2, 0)
    assert table["inserted"] + table["updated"] + table["deleted"] > 0
    assert "caught up through" in table
    assert "VTTS" in table
    snapshot = IcebergCatalog("lake", connections.get("lake", IcebergConnection)).require(flow.table("upsert_delete"))
    assert str(snapshot.current_snapshot().snapshot_id) == table["snapshot id"]  # type: ignore[union-attr]
    checks = events(instance, second, dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    assert len(checks) == 10
    assert all(event.asset_check_evaluation_data.passed for event in checks)
    _check_lineage(flow, lineage, first.run_id, table)


def test_run_gives_a_row_with_a_new_key_the_values_of_its_old_one(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance
) -> None:
    """One run lands the insert as a dead letter, reads it again with what the table has, and merges all of it."""
    name = topic()
    value = {"format": "json", "envelope": {"kind": "debezium"}, "columns": left_out.COLUMNS}
    key = {"columns": ["id"], "source": "value"}
    parts: dict[str, object] = {
        "source": {"topics": [name], "value": value},
        "changes": {"key": key, "order_by": "arrival"},
    }
    flow = Flow(name, ["upsert_delete"], overrides=parts)
    produce(bootstrap(connections), name, [left_out.change(1, "c", body="one", n=1), left_out.change(5, "c")])
    assert advance(instance, flow).success
    produce(bootstrap(connections), name, left_out.moved(1, 2, n=2))
    second = advance(instance, flow, until_caught_up=True)
    landed = second.landing.metadata
    assert (landed["read"], landed["landed"], landed["quarantined"]) == (3, 2, 0)
    checks = events(instance, second, dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    assert [e.asset_check_evaluation_data.check_name for e in checks if not e.asset_check_evaluation_data.passed] == []
    table = IcebergCatalog("lake", connections.get("lake", IcebergConnection)).require(flow.table("upsert_delete"))
    found = table.scan(selected_fields=("id", "body")).to_arrow().to_pylist()
    assert {row["id"]: row["body"] for row in found} == {2: "one", 5: None}


def _check_lineage(flow: Flow, sent: list[dict[str, Any]], run_id: str, table: Mapping[str, Any]) -> None:
    assert [event["eventType"] for event in sent] == ["START", "COMPLETE"] * 4
    landing, merge = sent[1], sent[7]
    assert landing["run"]["facets"]["parent"]["run"]["runId"] == run_id
    assert landing["job"]["name"] == f"{flow.name}.landing"
    assert landing["inputs"][0]["name"] == flow.topic
    assert landing["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] > 0
    (read,), (written,) = merge["inputs"], merge["outputs"]
    assert (read["namespace"], read["name"]) == tuple(landing["outputs"][0][n] for n in ("namespace", "name"))
    assert written["name"] == flow.table("upsert_delete")
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == table["inserted"] + table["updated"]
    columns = {field["name"] for field in written["facets"]["schema"]["fields"]}
    origins = written["facets"]["columnLineage"]["fields"]
    assert columns == origins.keys()
    assert [place["field"] for place in origins["name"]["inputFields"]] == ["value.name"]


def test_lineage_reports_a_failure_and_never_causes_one(
    topic: Topic, instance: dg.DagsterInstance, lineage: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = Flow("no-such-topic", ["append"], overrides=NO_DELAY)
    assert not advance(instance, missing).success
    assert [event["eventType"] for event in lineage] == ["START", "FAIL"]
    assert "no-such-topic" in lineage[1]["run"]["facets"]["errorMessage"]["message"]

    for nobody in ("http://127.0.0.1:9", "localhost:5000"):  # nobody listens there, and it is no URL
        monkeypatch.setenv("OPENLINEAGE_URL", nobody)
        assert advance(instance, Flow(topic(), ["append"], overrides=NO_DELAY)).success


def test_receiver_of_lineage_that_is_down_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Receiver(Handler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.answer(503, headers={"Retry-After": "15"})

    began = time.monotonic()
    with serving(Receiver) as address:
        monkeypatch.setenv("OPENLINEAGE_URL", address)
        _sender().began()
    assert len(asked) == 2
    assert time.monotonic() - began < 15, "the receiver does not say how long a step waits"


@contextmanager
def slow_receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """One that takes twice the time that events have; the types of the events that it gets."""
    got: list[str] = []

    class Receiver(Handler):
        def do_POST(self) -> None:
            got.append(json.loads(self.body())["eventType"])
            time.sleep(0.2)
            self.answer(201)

    monkeypatch.setattr("orchestration.open_lineage.sender._SPENT", TimeSpent())
    monkeypatch.setattr("orchestration.open_lineage.sender._SHARE", 0.1)
    with serving(Receiver) as address:
        monkeypatch.setenv("OPENLINEAGE_URL", address)
        yield got


def test_receiver_of_lineage_that_is_slow_delays_steps_for_a_part_of_each_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with slow_receiver(monkeypatch) as got:
        for _ in range(20):
            _sender().began()
        assert len(got) == 1
        assert [record.getMessage() for record in caplog.records if record.name == "batchmerge"] == [
            "OpenLineage's receiver is too slow: its next events are left out, for up to a minute"
        ]
        monkeypatch.setattr("orchestration.open_lineage.sender._MINUTE", 0.0)
        _sender().began()
    assert len(got) == 2


def test_step_whose_beginning_a_slow_receiver_accepted_has_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_receiver(monkeypatch) as got:
        first, second = _sender(), _sender()
        first.began()
        second.began()
        second.completed(1)
        first.failed(ValueError())
    assert got == ["START", "FAIL"]


def test_each_try_of_a_step_is_a_run_of_its_own(lineage: list[dict[str, Any]]) -> None:
    """What has failed, or is complete, cannot begin again."""
    run = str(uuid.uuid4())
    for _ in range(2):
        sender = Sender("p", run, "landing", [], Dataset("n", "t"))
        sender.began()
        sender.completed(1)
    first, second = ({event["run"]["runId"] for event in lineage[n : n + 2]} for n in (0, 2))
    assert (len(first), len(second), first & second) == (1, 1, set())
    assert {event["run"]["facets"]["parent"]["run"]["runId"] for event in lineage} == {run}


@pytest.mark.parametrize(
    ("setting", "value"), [("OPENLINEAGE_URL", "localhost:5000"), ("OPENLINEAGE__TRANSPORT__TYPE", "htttp")]
)
def test_wrong_settings_of_lineage_are_a_warning(
    setting: str, value: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(setting, value)
    sender = _sender()
    sender.began()
    sender.completed(1)
    (message,) = [record.getMessage() for record in caplog.records if record.name == "batchmerge"]
    assert "settings" in message
    assert value not in message, "an address may have a password"


def _sender() -> Sender:
    return Sender("p", str(uuid.uuid4()), "landing", [], Dataset("n", "t"))


def test_run_without_new_records_changes_nothing(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance
) -> None:
    flow = Flow(topic(), ["append"])
    produce(bootstrap(connections), flow.topic, upserts(0, 10))
    advance(instance, flow)

    again = advance(instance, flow)

    assert again.success
    assert [step.metadata["batches"] for step in again.steps] == [0, 0]
    assert len(rows(connections, flow.table("append"))) == 10


def test_run_that_cannot_reach_kafka_may_succeed_later(
    connections: Connections, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instance: dg.DagsterInstance
) -> None:
    file = tmp_path / "connections.yaml"
    nobody = {"kind": "kafka", "bootstrap_servers": f"127.0.0.1:{free_port(())}", "timeout_seconds": 0.5}
    lake = connections.get("lake", IcebergConnection).model_dump(mode="json", exclude_defaults=True)
    file.write_text(yaml.safe_dump({"connections": {"kafka": nobody, "lake": {"kind": "iceberg", **lake}}}))
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(file))

    result = advance(instance, Flow("nowhere", ["append"], overrides={"retry": {"max_retries": 0}}))

    assert not result.success
    assert "Kafka" in str(result.landing.problem)
    assert result.tables[0].problem == "not run: a step before it failed"
    assert result.transient


def test_plain_run_on_a_past_hour_is_refused(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance
) -> None:
    flow = Flow(topic(), ["append"], overrides=NO_DELAY)
    produce(bootstrap(connections), flow.topic, upserts(0, 5))
    past = _hour(datetime.now(UTC) - timedelta(hours=3))

    result = run_job(instance, definitions(flow), flow.name, {}, hours=(past, past))

    assert not result.success
    assert "with `mode: replay` in" in str(result.landing.problem)
    assert not result.transient
    assert result.tables[0].problem == "not run: a step before it failed"
    assert not events(instance, result, dg.DagsterEventType.STEP_RESTARTED)
    assert flow.pipeline(connections).intermediate.landed().batches == []


def test_backfill_replays_in_one_run(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance, lineage: list[dict[str, Any]]
) -> None:
    flow = Flow(topic(partitions=2), ["upsert_delete"], max_records=200)
    records = random_changes(seed=2, count=400, keys=50, partitions=2)
    produce(bootstrap(connections), flow.topic, records)
    advance(instance, flow, until_caught_up=True)
    catalog = IcebergCatalog("lake", connections.get("lake", IcebergConnection))
    table = flow.table("upsert_delete")
    lost = rows(connections, table)[0][0]
    catalog.require(table).delete(f"id == {lost}")
    assert rows(connections, table) != expected(records, "upsert_delete")
    before = flow.pipeline(connections).destinations()[0].committed()
    now = datetime.now(UTC)
    hours = (_hour(now - timedelta(hours=1)), _hour(now))

    result = run_job(instance, definitions(flow), flow.name, {}, hours=hours, tags={"dagster/backfill": "b1"})

    assert result.success
    assert rows(connections, table) == expected(records, "upsert_delete")
    assert flow.pipeline(connections).destinations()[0].committed() == before
    assert result.landing.metadata["batches"] == result.tables[0].metadata["batches"] == 2
    assert "replay of" in result.tables[0].metadata
    made = events(instance, result, dg.DagsterEventType.ASSET_MATERIALIZATION)
    assert {event.partition for event in made} == set(hours)
    assert len(flow.pipeline(connections).intermediate.landed().batches) == 2
    landings = [e for e in lineage if (e["eventType"], e["job"]["name"]) == ("COMPLETE", f"{flow.name}.landing")]
    written = [event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] for event in landings]
    batches = flow.pipeline(connections).intermediate.landed().batches
    assert written == [sum(batch.counts.landed for batch in batches), 0]


def test_failed_blocking_check_stops_what_comes_after(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance
) -> None:
    flow = Flow(topic(), ["upsert"], overrides=NO_DELAY)
    produce(bootstrap(connections), flow.topic, upserts(0, 5))
    advance(instance, flow)
    # Somebody writes to the table by hand, and now a key has two rows.
    table = IcebergCatalog("lake", connections.get("lake", IcebergConnection)).require(flow.table("upsert"))
    foreign = {"id": [3], "name": ["twice"], "amount": [0.0]}
    schema = table.schema().as_arrow()
    table.append(pa.table({f.name: foreign.get(f.name, [None]) for f in schema}, schema=schema))
    produce(bootstrap(connections), flow.topic, upserts(3, 1))
    made: list[str] = []
    upstream = dg.AssetKey(["iceberg", "tests", f"{flow.name}_upsert"])

    @dg.asset(deps=[upstream], partitions_def=dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_offset=1))
    def report() -> None:
        made.append("report")

    whole = dg.Definitions.merge(definitions(flow), dg.Definitions(assets=[report]))
    job = dg.define_asset_job("everything", selection=dg.AssetSelection.all())
    whole = dg.Definitions.merge(whole, dg.Definitions(jobs=[job]))
    resolved = whole.resolve_job_def("everything")
    assert resolved.partitions_def
    hour, asked = hour_of(resolved.partitions_def, datetime.now(UTC))
    result = resolved.execute_in_process(instance=instance, partition_key=hour, tags=asked, raise_on_error=False)

    assert not result.success
    assert made == []
    failed = [e for e in result.all_events if e.is_step_failure]
    assert len(failed) == 1
    assert "keys_unique" in str(failed[0].step_failure_data.user_failure_data)
    assert not [e for e in result.all_events if e.event_type == dg.DagsterEventType.STEP_RESTARTED]


@pytest.fixture
def altered(stack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, object]], None]:
    """Points BATCHMERGE_CONNECTIONS to a copy of the stack's file with some entries changed or added."""

    def alter(entries: dict[str, object]) -> None:
        monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(write_connections(stack, tmp_path, **entries)))

    return alter


def test_transient_failure_is_tried_again_and_terminal_is_not(
    topic: Topic,
    instance: dg.DagsterInstance,
    altered: Callable[[dict[str, object]], None],
    silent_server: str,
) -> None:
    flow = Flow(topic(), ["append"], overrides=NO_DELAY)
    altered({"kafka": {"kind": "kafka", "bootstrap_servers": silent_server, "timeout_seconds": 0.5}})
    unreachable = advance(instance, flow)
    altered({})
    missing = advance(instance, Flow("no-such-topic", ["append"], overrides=NO_DELAY))

    assert unreachable.landing.transient
    assert len(events(instance, unreachable, dg.DagsterEventType.STEP_RESTARTED)) == 1
    assert not missing.landing.transient
    assert "no-such-topic" in str(missing.landing.problem)
    assert not events(instance, missing, dg.DagsterEventType.STEP_RESTARTED)


def test_hanging_tables_stop_neither_a_first_landing_nor_the_other_table(
    connections: Connections,
    topic: Topic,
    instance: dg.DagsterInstance,
    altered: Callable[[dict[str, object]], None],
    silent_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow = Flow(topic(), ["append"], overrides={"retry": {"max_retries": 0}, "control": {"time_limit_seconds": 1}})
    good = flow.spec_document["tables"]
    name = f"tests.{flow.name}_other"
    hanging = [
        {"kind": "iceberg", "connection": "second", "table": name, "mode": "append", "time_limit_seconds": 2},
        {"kind": "clickhouse", "connection": "third", "table": name, "mode": "append", "time_limit_seconds": 2},
        {"kind": "bigquery", "connection": "fourth", "table": name, "mode": "append", "time_limit_seconds": 2},
    ]
    flow.overrides["tables"] = [*hanging, *good]
    altered(
        {
            "second": {"kind": "iceberg", "type": "rest", "uri": f"http://{silent_server}"},
            "third": {"kind": "clickhouse", "endpoints": [silent_server]},
            "fourth": {"kind": "bigquery", "project": "p", "endpoint": f"http://{silent_server}"},
        }
    )
    # A first landing asks every table for the highest batch number that it knows.
    monkeypatch.setattr("jobs.planning.highest_batch._PATIENCE", 1)
    produce(bootstrap(connections), flow.topic, upserts(0, 10))

    result = advance(instance, flow)

    by_asset = {step.asset: step for step in result.steps}
    assert result.landing.problem is None
    assert by_asset[f"iceberg/tests/{flow.name}_append"].problem is None
    assert len(rows(connections, flow.table("append"))) == 10
    for where in ("iceberg/second", "clickhouse/third", "bigquery/fourth"):
        hung = by_asset[f"{where}/tests/{flow.name}_other"]
        assert hung.transient
        assert "time limit of 2 s" in str(hung.problem)

    # What hung catches up once it answers.
    lake = connections.get("lake", IcebergConnection).model_dump(exclude_defaults=True)
    altered({"second": lake})
    flow.overrides["tables"] = [hanging[0] | {"time_limit_seconds": 300}, *good]
    assert advance(instance, flow).success
    caught_up = IcebergCatalog("second", connections.get("lake", IcebergConnection)).require(name)
    assert caught_up.scan().to_arrow().num_rows == 10


@pytest.mark.parametrize("retired", [False, True])
def test_backfill_before_the_first_landed_batch_reads_kafka(
    retired: bool, connections: Connections, topic: Topic, instance: dg.DagsterInstance
) -> None:
    """Also if it is only the first one because retention has removed others."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    long_ago = now - timedelta(hours=5)
    flow = Flow(topic(), ["upsert"], overrides={**NO_DELAY, "maintenance": {"landed": {"keep_days": 1e-6}}})
    produce(bootstrap(connections), flow.topic, upserts(0, 3), timestamp=int(long_ago.timestamp() * 1000))
    flow.overrides["source"] = {**flow.spec_document["source"], "start": "latest"}
    assert advance(instance, flow).success
    produce(bootstrap(connections), flow.topic, upserts(2, 2))
    assert advance(instance, flow).success
    table = flow.table("upsert")
    assert [row[0] for row in rows(connections, table)] == [2, 3]
    if retired:
        assert [done for done in maintain_landing(flow.pipeline(connections)) if done.problem] == []
    assert flow.pipeline(connections).intermediate.landed().complete != retired
    before = flow.pipeline(connections).destinations()[0].committed()

    hours = (_hour(long_ago), _hour(long_ago))
    result = run_job(instance, definitions(flow), flow.name, {}, hours=hours, tags={"dagster/backfill": "b2"})

    assert result.success
    assert [row[0] for row in rows(connections, table)] == [0, 1, 2, 3]
    assert result.tables[0].metadata["dagster/row_count"] == 4
    # What is read again is a batch of its own, which moves no offset.
    after = flow.pipeline(connections).destinations()[0].committed()
    assert before
    assert after
    assert (dict(after.offsets), after.batch_number) == (dict(before.offsets), before.batch_number + 1)
