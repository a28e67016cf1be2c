"""`batchmerge offsets set | reset` on a real broker: the choices that errors leave, carried out by a person."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from jobs import protocol
from jobs.dead_letters.listing import list_dead_letters
from jobs.dead_letters.retry import retry
from jobs.verify.reconciliation import reconcile
from orchestration.cli.instance import dagster_instance
from orchestration.names import PIPELINE_TAG
from resources.connections import Connections
from resources.errors import ConfigurationError, LineageBroken, TableReplaced, TopicRecreated
from tests.kit.command import Command
from tests.kit.dead_letters import narrowed
from tests.kit.engine import Engine, catalog
from tests.kit.flow import Flow
from tests.kit.model import Row
from tests.kit.records import COLUMNS, KEY, Record, bootstrap, produce, put, recreate


def row(key: int, name: str) -> Row:
    return key, name, 1.0


def test_recreated_topic_and_a_step_back(
    connections: Connections, topic: Callable[..., str], spark: SparkSession, batchmerge: Command
) -> None:
    flow = Flow(topic(), ["upsert"])
    engine = Engine(flow, connections, spark)
    servers = bootstrap(connections)
    produce(servers, flow.topic, [put(n, "old") for n in range(4)])
    engine.advance()
    recreate(connections, flow.topic)
    produce(servers, flow.topic, [put(n, "new") for n in range(2)])
    with pytest.raises(TopicRecreated) as caught:
        engine.land()
    assert f"batchmerge offsets reset {flow.name} --topic {flow.topic} --to earliest" in caught.value.remedy
    arguments = ["offsets", "reset", "", "--topic", flow.topic, "--to", "earliest"]
    code, output = batchmerge(engine, *arguments)
    assert code == 0
    assert "another topic of this name" in output
    assert "Nothing was changed" in output
    with pytest.raises(TopicRecreated):
        engine.land()
    code, output = batchmerge(engine, *arguments, "--yes")
    assert (code, "Done, as batch 2" in output) == (0, True), output
    engine.advance()
    assert engine.read("upsert") == [row(0, "new"), row(1, "new"), row(2, "old"), row(3, "old")]
    # The same records once more: an upsert table does not change by it.
    code, output = batchmerge(engine, "offsets", "set", "", f"{flow.topic}-0=0", "--yes")
    assert (code, "gets 2 again" in output) == (0, True), output
    produce(servers, flow.topic, [put(9, "last")])
    landed = engine.advance()
    assert landed[-1].counts.read == 3
    expected = [row(0, "new"), row(1, "new"), row(2, "old"), row(3, "old"), row(9, "last")]
    assert engine.read("upsert") == expected
    engine.replay("upsert", 1, 5)
    assert engine.read("upsert") == expected


LARGE = 2**40
WHERE = ["topic", "partition", "offset"]


@pytest.mark.slow
@pytest.mark.parametrize("columns", [[*WHERE, "batch"], WHERE])
def test_dead_letter_of_a_recreated_topic_is_no_row_of_the_old_one(
    columns: list[str],
    connections: Connections,
    topic: Callable[..., str],
    spark: SparkSession,
    batchmerge: Command,
) -> None:
    """Rows of both topics have the offset 1. Only their batch distinguishes them: without it nothing is done."""
    modes = ["append", "delete"]
    flow = Flow(topic(), modes, table_options={"metadata_columns": columns})
    narrow, engine = narrowed(Engine(flow, connections, spark))
    servers = bootstrap(connections)
    produce(servers, flow.topic, [put(n, "old") for n in range(3)])
    narrow.advance()
    recreate(connections, flow.topic)
    code, output = batchmerge(narrow, "offsets", "reset", "", "--topic", flow.topic, "--to", "earliest", "--yes")
    assert code == 0, output
    value = {"id": 9, "name": "new", "amount": LARGE, "op": "u"}
    produce(servers, flow.topic, [put(8, "new"), Record(0, 9, value)])
    narrow.advance()
    before = [row(0, "old"), row(1, "old"), row(2, "old"), row(8, "new")]
    assert [engine.read(mode) for mode in modes] == [before] * len(modes)
    if "batch" not in columns:
        with pytest.raises(ConfigurationError, match="was recreated"):
            retry(engine.pipeline)
        assert len(list(list_dead_letters(engine.pipeline, 9))) == 1
        return
    for _ in range(2):
        retry(engine.pipeline)
        assert [engine.read(mode) for mode in modes] == [[*before, (9, "new", float(LARGE))]] * len(modes)
        assert list(list_dead_letters(engine.pipeline, 9)) == []
    for mode in modes:
        engine.replay(mode, 1, 3)
        assert engine.read(mode) == [*before, (9, "new", float(LARGE))]


def test_lost_intermediate_table_and_changed_meaning(
    connections: Connections, topic: Callable[..., str], spark: SparkSession, batchmerge: Command
) -> None:
    flow = Flow(topic(), ["append", "upsert"])
    engine, servers = Engine(flow, connections, spark), bootstrap(connections)
    produce(servers, flow.topic, [put(1, "a")])
    engine.advance()
    produce(servers, flow.topic, [put(2, "b")])
    engine.advance()
    table = catalog(connections).require(engine.pipeline.intermediate.identifier)
    table.manage_snapshots().set_current_snapshot(table.metadata.snapshots[-2].snapshot_id).commit()
    with pytest.raises(TableReplaced) as caught:
        engine.land()
    assert f"batchmerge offsets reset {flow.name} --to committed" in caught.value.remedy
    with pytest.raises(LineageBroken):
        engine.merge("append")
    code, output = batchmerge(engine, "offsets", "reset", "", "--to", "committed", "--yes")
    assert (code, "All offsets stay" in output) == (0, True), output
    produce(servers, flow.topic, [put(3, "c")])
    engine.advance()
    assert engine.read("append") == engine.read("upsert") == [row(1, "a"), row(2, "b"), row(3, "c")]

    catalog(connections)._catalog.drop_table(engine.pipeline.intermediate.identifier)
    produce(servers, flow.topic, [put(4, "d")])
    code, output = batchmerge(engine, "offsets", "reset", "", "--to", "committed", "--yes")
    assert code == 0, output
    engine.advance()
    assert engine.read("append") == engine.read("upsert") == [row(n, "abcd"[n - 1]) for n in range(1, 5)]

    changed = engine.edited(changes={"key": {"columns": ["id"]}, "op": {"field": "op", "keep": True}})
    with pytest.raises(ConfigurationError, match="not what the committed batches were made with"):
        changed.land()
    code, output = batchmerge(changed, "offsets", "reset", "", "--to", "committed", "--accept-changes", "--yes")
    assert code == 0, output
    produce(servers, flow.topic, [put(4, "e")])
    changed.advance()
    assert changed.read("upsert") == [row(1, "a"), row(2, "b"), row(3, "c"), row(4, "e")]
    with pytest.raises(ConfigurationError, match="were landed with another `changes`") as refused:
        changed.replay("upsert", 6, 8)
    assert "--kafka-from" in refused.value.remedy


def test_changed_key_has_a_column_that_is_new(
    connections: Connections, topic: Callable[..., str], spark: SparkSession, batchmerge: Command
) -> None:
    """Existing rows are looked through for it; and they are as the old key made them."""
    flow = Flow(topic(), ["delete", "upsert"])

    def by(*columns: str) -> dict[str, object]:
        key = {"columns": columns, "source": "value", "nulls": "match"}
        return {"key": key, "op": {"field": "op"}, "order_by": "arrival"}

    engine, servers = Engine(flow, connections, spark).edited(changes=by("id", "name")), bootstrap(connections)
    produce(servers, flow.topic, [put(1, "a"), put(1, "b"), put(2, "c")])
    engine.advance()
    changed = engine.edited(changes=by("id", "region")).with_value(columns={**COLUMNS, "region": "string"})
    code, output = batchmerge(changed, "offsets", "reset", "", "--to", "committed", "--accept-changes", "--yes")
    assert code == 0, output
    produce(servers, flow.topic, [put(2, "d", region="eu"), put(1, "e", "d", region="eu")])
    changed.advance()
    for mode in flow.modes:
        assert changed.read(mode) == [row(1, "a"), row(1, "b"), row(2, "c"), row(2, "d")]
        assert reconcile(changed.pipeline, changed.destination(mode), 0).wrong == []


def test_dead_letters_are_retried_with_another_key(
    connections: Connections, topic: Callable[..., str], spark: SparkSession, batchmerge: Command
) -> None:
    """The landing keeps the columns of the earlier key."""
    flow = Flow(topic(), ["upsert"])

    def by(*columns: str) -> dict[str, object]:
        return {"key": {"columns": columns, "source": "value"}, "op": {"field": "op"}, "order_by": "arrival"}

    engine, servers = Engine(flow, connections, spark).edited(changes=by("id", "name")), bootstrap(connections)
    produce(servers, flow.topic, [put(1, "a")])
    engine.advance()
    changed = engine.edited(changes=by("id")).with_value(columns={**COLUMNS, "size": "int"})
    code, output = batchmerge(changed, "offsets", "reset", "", "--to", "committed", "--accept-changes", "--yes")
    assert code == 0, output
    produce(servers, flow.topic, [put(1, "b"), put(2, "c", size="no number")])
    changed.advance()
    fewer = changed.with_value(columns=COLUMNS)
    assert retry(fewer.pipeline).recovered == 1
    fewer.merge("upsert")
    assert fewer.read("upsert") == [row(1, "b"), row(2, "c")]


def test_refusals_and_exit_codes(
    connections: Connections, topic: Callable[..., str], spark: SparkSession, batchmerge: Command
) -> None:
    flow = Flow(topic(), ["append"])
    engine = Engine(flow, connections, spark)
    code, output = batchmerge(engine, "offsets", "reset", "", "--to", "latest")
    assert (code, "nothing is committed yet" in output) == (2, True), output
    produce(bootstrap(connections), flow.topic, [put(1, "a"), put(2, "b")])
    engine.advance()
    for arguments, sentence in [
        (["set", "", f"{flow.topic}-0=9"], "Kafka has only 0 to 2"),
        (["set", "", "nonsense"], "is not TOPIC-PARTITION=OFFSET"),
        (["set", "", "elsewhere-0=1"], "not a source of the pipeline"),
        (["reset", "", "--to", "yesterday"], "--to is earliest, latest, committed, or a time"),
        (["reset", "", "--to", "latest", "--topic", "elsewhere"], "elsewhere is not a topic of pipeline"),
        (["reset", "", "--to", "committed", "--table", "no.such"], "has no table 'no.such'"),
    ]:
        code, output = batchmerge(engine, "offsets", *arguments)
        assert (code, sentence in output) == (2, True), output
    with dagster_instance() as instance:
        run = instance.create_run_for_job(_waiting, tags={PIPELINE_TAG: flow.name}, status=dg.DagsterRunStatus.STARTED)
    code, output = batchmerge(engine, "offsets", "set", "", f"{flow.topic}-0=1", "--yes")
    assert (code, f"run {run.run_id[:8]} of {flow.name} is started" in output) == (3, True), output
    code, output = batchmerge(engine, "offsets", "set", "", f"{flow.topic}-0=1")
    assert (code, "reads 1 again" in output) == (0, True), output
    asset = "/".join(engine.destination("append").table.full_path)
    code, output = batchmerge(engine, "offsets", "reset", "", "--to", "committed", "--table", asset)
    assert (code, "Add --yes" in output) == (0, True), output
    state = engine.destination("append").committed()
    assert state
    assert state.batch_number == 1


@dg.job
def _waiting() -> None:
    """A job without steps, for a run that goes on."""


def test_topic_that_was_taken_out_is_forgotten(
    connections: Connections, topic: Callable[..., str], spark: SparkSession, batchmerge: Command
) -> None:
    one, two = topic("one"), topic("two")
    flow = Flow(one, ["append"])
    source = {"key": {"columns": KEY}, "value": {"columns": COLUMNS}}
    flow.overrides["source"] = {"topics": [one, two], **source}
    engine = Engine(flow, connections, spark)
    produce(bootstrap(connections), one, [put(1, "a")])
    produce(bootstrap(connections), two, [put(2, "b")])
    engine.advance()
    without = engine.edited(source={"topics": [one], **source})
    with pytest.raises(TopicRecreated, match="no longer named as a source"):
        without.land()
    code, output = batchmerge(without, "offsets", "reset", "", "--topic", two, "--to", "earliest", "--yes")
    assert (code, "forgotten" in output) == (0, True), output
    produce(bootstrap(connections), one, [put(3, "c")])
    without.advance()
    assert without.read("append") == [row(1, "a"), row(2, "b"), row(3, "c")]

    recreate(connections, two)
    produce(bootstrap(connections), two, [put(4, "d")])
    with pytest.raises(TopicRecreated, match="the topic was recreated: its id is"):
        engine.land()
    code, output = batchmerge(engine, "offsets", "reset", "", "--topic", two, "--to", "earliest", "--yes")
    assert code == 0, output
    engine.advance()
    assert engine.read("append") == [row(1, "a"), row(2, "b"), row(3, "c"), row(4, "d")]
    assert engine.pipeline.intermediate.recreated() == {two: [4]}, "so that rows of both topics stay apart"


def test_batch_that_another_run_lands_while_kafka_is_asked_is_no_recreated_topic(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    engine = Engine(Flow(topic(), ["append"]), connections, spark)
    engine.produce(put(1, "a"))
    before = engine.pipeline.topic_state()
    engine.produce(put(2, "b"))
    engine.land()
    assert protocol.plan(engine.pipeline, before).batch is None
