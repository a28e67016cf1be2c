"""What a pipeline publishes on its control topic: five events with their payloads, late but never wrong."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from pyspark.sql import SparkSession

from jobs import protocol
from jobs.destinations.base import Destination
from jobs.events.messages import (
    CommitComplete,
    CommitReady,
    CommitRequest,
    CommitResponse,
    CommitTable,
)
from jobs.events.reading import read_events
from jobs.pipeline import Pipeline
from resources.connections import Connections
from resources.control_topic import ControlWriter
from resources.errors import TopicMissing
from resources.kafka_groups import group_offsets
from resources.topic_partition import TopicPartition
from tests.kit.engine import Engine
from tests.kit.events import check_all_published, check_groups, cluster, effective, events
from tests.kit.flow import Flow
from tests.kit.records import bootstrap, random_changes
from tests.kit.waiting import PATIENCE, until

PAGE = Path(__file__).parents[2] / "docs" / "events.md"


@pytest.fixture
def engine(spark: SparkSession, connections: Connections, topic: Callable[..., str]) -> Engine:
    """Two tables, a control topic of its own that does not exist yet."""
    control = {"topic": f"control-{uuid.uuid4().hex[:8]}", "time_limit_seconds": 300}
    flow = Flow(topic(partitions=2), ["append", "upsert_delete"], max_records=80, overrides={"control": control})
    return Engine(flow, connections, spark)


def _grow(engine: Engine, seed: int, count: int = 120) -> None:
    engine.produce(*random_changes(seed, count, 30, 2))


def _control(engine: Engine) -> str:
    return engine.pipeline.spec.control.topic


def _group_offsets(pipeline: Pipeline) -> dict[TopicPartition, int]:
    return group_offsets(pipeline.kafka, pipeline.group, pipeline.topic_state().stable)


def _advance(pipeline: Pipeline) -> None:
    list(protocol.land(pipeline, 0))
    for destination in pipeline.destinations():
        protocol.merge(pipeline, destination)


class TestPipeline:
    def test_all_five_events_with_their_payloads(self, engine: Engine, connections: Connections) -> None:
        _grow(engine, 1)
        first, second = engine.advance()
        pipeline = engine.pipeline
        published = events(connections, _control(engine))
        check_all_published(pipeline, published)
        check_groups(pipeline)
        assert effective(published) == published
        assert {e.run_id for e in published} == {"test"}
        payloads = [e.payload for e in published if e.payload.commit_id == second.batch.commit_id]
        request, response, ready, *tables, complete = payloads
        assert isinstance(request, CommitRequest)
        assert (request.batch_number, request.previous_commit_id) == (2, first.batch.commit_id)
        assert request.records == 40
        assert isinstance(response, CommitResponse)
        table = pipeline.intermediate.catalog.require(pipeline.intermediate.identifier)
        before, after = (set(table.inspect.files(b.snapshot_id)["file_path"].to_pylist()) for b in (first, second))
        files = after - before
        assert {f.path for f in response.data_files} == files
        assert response.files == len(files) > 0
        assert sum(f.records for f in response.data_files) == second.counts.landed + second.counts.quarantined
        assert response.counts == second.counts.__dict__
        assert isinstance(ready, CommitReady)
        assert ready.start_offsets == {tp: r.start for tp, r in second.batch.ranges.items()}
        assert ready.next_offsets == {tp: r.end for tp, r in second.batch.ranges.items()}
        assert isinstance(complete, CommitComplete)
        for event, destination in zip(tables, pipeline.destinations(), strict=True):
            assert isinstance(event, CommitTable)
            found = pipeline.intermediate.catalog.require(destination.table.table)
            assert (event.connection, event.table) == ("lake", destination.table.table)
            assert event.reference == str(found.metadata.current_snapshot_id)
            assert event.vtts
            assert event.vtts.timestamp() * 1000 == second.watermark.vtts
            assert complete.vtts == event.vtts

    def test_a_table_that_catches_up_publishes_each_batch(self, engine: Engine, connections: Connections) -> None:
        """Complete is published only for batches that every table has."""
        _grow(engine, 1, 300)
        assert len(engine.land()) == 4
        engine.merge("append")
        published = events(connections, _control(engine))
        assert [e.payload.batch_number for e in published if e.type == "commit_table"] == [1, 2, 3, 4]
        assert [e for e in published if e.type == "commit_complete"] == []
        assert _group_offsets(engine.pipeline) == {}
        engine.merge("upsert_delete")
        published = events(connections, _control(engine))
        assert [e.payload.batch_number for e in published if e.type == "commit_complete"] == [1, 2, 3, 4]
        check_all_published(engine.pipeline, published)
        check_groups(engine.pipeline)

    def test_a_role_stays_open_for_the_next_batch(
        self, engine: Engine, connections: Connections, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened, real = list[ControlWriter](), ControlWriter.open

        def counted(writer: ControlWriter, create: bool) -> None:
            opened.append(writer)
            real(writer, create)

        monkeypatch.setattr(ControlWriter, "open", counted)
        pipeline = engine.pipeline
        for seed in range(3):
            _grow(engine, seed, 40)
            _advance(pipeline)
        assert len(opened) == 3, "landing and two tables"
        check_all_published(pipeline, events(connections, _control(engine)))

    def test_a_role_that_another_run_took_meanwhile_is_taken_back(
        self, engine: Engine, connections: Connections, caplog: pytest.LogCaptureFixture
    ) -> None:
        runs = engine.pipeline, engine.pipeline
        for seed in range(4):
            _grow(engine, seed, 40)
            _advance(runs[seed % 2])
        published = events(connections, _control(engine))
        check_all_published(engine.pipeline, published)
        check_groups(engine.pipeline)
        assert effective(published) == published
        assert [r.message for r in caplog.records if "could not be published" in r.message] == []

    def test_nothing_new_publishes_nothing(self, engine: Engine, connections: Connections) -> None:
        _grow(engine, 1, 60)
        engine.advance()
        published = events(connections, _control(engine))
        engine.advance()
        assert events(connections, _control(engine)) == published

    def test_tables_that_commit_at_once(self, engine: Engine, connections: Connections) -> None:
        """They do not fence each other; both may publish complete, with one id."""
        for seed in range(3):
            _grow(engine, seed, 60)
            engine.land()
            together = Barrier(len(engine.flow.modes))

            def merge(mode: str, together: Barrier = together) -> None:
                together.wait(PATIENCE)
                engine.merge(mode)

            with ThreadPoolExecutor(len(engine.flow.modes)) as pool:
                list(pool.map(merge, engine.flow.modes))
            published = events(connections, _control(engine))
            check_all_published(engine.pipeline, published)
            repeated = [e.type for e in published if e not in effective(published)]
            assert set(repeated) <= {"commit_complete"}
        check_groups(engine.pipeline)

    def test_switched_off_there_are_no_events_and_the_group_follows(
        self, engine: Engine, connections: Connections
    ) -> None:
        silent = engine.edited(control={"topic": _control(engine), "enabled": False})
        _grow(silent, 1, 60)
        silent.advance()
        state = silent.pipeline.intermediate.committed()
        assert state
        assert _group_offsets(silent.pipeline) == dict(state.offsets)
        with pytest.raises(TopicMissing):
            read_events(cluster(connections), _control(engine), None)

    def test_a_missing_topic_is_a_warning_and_the_next_run_publishes(
        self, engine: Engine, connections: Connections, caplog: pytest.LogCaptureFixture
    ) -> None:
        name = _control(engine)
        strict = engine.edited(control={"topic": name, "create": False, "time_limit_seconds": 300})
        _grow(strict, 1)
        assert len(strict.advance()) == 2
        warnings = [text for r in caplog.records if "could not be published" in (text := r.getMessage())]
        # Once for landing, however many batches it lands, and once for each table.
        assert len(warnings) == 3
        assert all(name in line and "control.create" in line for line in warnings)
        engine.advance()
        published = events(connections, name)
        check_all_published(engine.pipeline, published)
        check_groups(engine.pipeline)

    def test_a_topic_that_refuses_is_a_warning_and_the_next_run_publishes(
        self,
        engine: Engine,
        connections: Connections,
        topic: Callable[..., str],
        admin: AdminClient,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        name = topic("control", partitions=1, config={"max.message.bytes": "100"})
        refused = engine.edited(control={"topic": name, "time_limit_seconds": 300})
        _grow(refused, 1)
        assert len(refused.advance()) == 2
        warnings = [text for r in caplog.records if "could not be published" in (text := r.getMessage())]
        assert len(warnings) == 3
        assert all("MSG_SIZE_TOO_LARGE" in line for line in warnings)
        assert events(connections, name) == []
        assert _group_offsets(refused.pipeline) == {}
        enough = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[enough])
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE)

        def is_enough() -> bool:
            found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(PATIENCE)
            return found[enough.name].value == enough.value

        until(is_enough, what="setting at the broker")
        refused.advance()
        check_all_published(refused.pipeline, events(connections, name))
        check_groups(refused.pipeline)

    def test_what_hangs_is_left_behind_after_the_time_limit(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        _grow(engine, 1, 60)
        engine.land()
        pipeline = engine.edited(control={"topic": _control(engine), "time_limit_seconds": 5}).pipeline
        asked, answer = Event(), Event()

        def hangs() -> list[Destination]:
            asked.set()
            assert answer.wait(300)
            return []

        destination = engine.destination("append")
        monkeypatch.setattr(pipeline, "destinations", hangs)
        try:
            assert protocol.merge(pipeline, destination)
            until(asked.is_set)  # what was left behind goes on, and may get there later
        finally:
            answer.set()
        assert "no answer within the time limit of 5 s" in caplog.text

    def test_a_table_that_is_gone_holds_back_complete_only(self, engine: Engine, connections: Connections) -> None:
        _grow(engine, 1, 60)
        engine.advance()
        _grow(engine, 2, 60)
        engine.land()
        # The other table is gone: its state is that of a table without a batch.
        catalog = engine.pipeline.intermediate.catalog
        catalog._catalog.drop_table(engine.flow.table("upsert_delete"))
        engine.merge("append")
        published = events(connections, _control(engine))
        assert [e.payload.batch_number for e in published if e.type == "commit_table"].count(2) == 1
        assert [e.payload.batch_number for e in published if e.type == "commit_complete"] == [1]


def test_the_documented_consumer_runs(engine: Engine, connections: Connections, tmp_path: Path) -> None:
    code = re.search(r"## A consumer\n+```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code
    script = tmp_path / "consumer.py"
    script.write_text(code.group(1).replace('"group.id": "reports"', f'"group.id": "reports-{uuid.uuid4()}"'))
    _grow(engine, 1, 60)
    engine.advance()
    consumer = subprocess.Popen(
        [sys.executable, str(script), bootstrap(connections), _control(engine)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert consumer.stdout
        lines = [consumer.stdout.readline().strip() for _ in range(3)]
    finally:
        consumer.kill()
        consumer.wait(30)
    name = engine.flow.name
    assert lines[:2] == [f"{name} batch 1 is in {engine.flow.table(mode)}" for mode in engine.flow.modes]
    assert lines[2].startswith(f"{name} batch 1 is complete to 20")
