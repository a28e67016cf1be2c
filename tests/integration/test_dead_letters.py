"""Dead letters: limits, and trying them again without overwriting what is newer, however often."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import cast

import pytest
from pyspark.sql import SparkSession

from jobs.dead_letters.listing import summary
from jobs.dead_letters.retry import retry
from resources.connections import Connections
from resources.errors import BadRecords, ConfigurationError
from tests.kit.clickhouse import clickhouse_flow
from tests.kit.clickhouse import rows as clickhouse_rows
from tests.kit.command import Command
from tests.kit.dead_letters import LARGE, narrowed, read_all
from tests.kit.engine import Engine, catalog
from tests.kit.flow import Flow
from tests.kit.records import Record, put

Headers = list[tuple[str, bytes]]


@pytest.mark.usefixtures("clickhouse")
def test_rows_that_clickhouse_cannot_take_are_listed(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    flow = clickhouse_flow(topic(), ["upsert_delete"], column_types={"amount": "Int8"})
    before, after = narrowed(Engine(flow, connections, spark))
    before.produce(put(1, "a"), put(2, "b", amount=987_654_321), put(3, "c", amount=LARGE))
    before.advance()
    (landed, unfit) = summary(before.pipeline)
    assert (landed.kind, landed.records, unfit.kind, unfit.records) == ("range", 1, "refused", 1)
    assert unfit.first == f"{flow.topic}-0@1"
    (dead_letter,) = before.destination("upsert_delete").dead_letters(10)
    assert (dead_letter.offset, dead_letter.value) == (1, None)
    assert "987654321" not in dead_letter.message
    assert retry(after.pipeline).recovered == 1
    assert clickhouse_rows(connections, flow.table("upsert_delete")) == [(1, "a", 1)]
    assert [g.kind for g in summary(after.pipeline)] == ["refused"]


def test_retry_is_refused_where_rows_cannot_be_distinguished(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    engine = Engine(Flow(topic(), ["append"]), connections, spark)
    with pytest.raises(ConfigurationError, match="metadata_columns"):
        retry(engine.pipeline)


def test_limits_and_skip(connections: Connections, spark: SparkSession, topic: Callable[..., str]) -> None:
    engine = Engine(Flow(topic(), ["upsert"]), connections, spark)
    engine.produce(put(1, "a"), put(2, 9_876_543_210), put(3, 18), put(4, "d"))
    share = {"max_share": 0.4, "share_from": 4}
    for limits, message in ((share, "max_share: 0.4"), ({"max_records": 1}, "max_records: 1")):
        for policy in ("quarantine", "skip"):
            with pytest.raises(BadRecords, match=message) as caught:
                engine.edited(dead_letters=limits, on_bad_record=policy).advance()
            assert "9876543210" not in str(caught.value)
    assert engine.pipeline.intermediate.committed() is None, "nothing was landed"
    (landed,) = engine.edited(on_bad_record="skip", dead_letters={"max_records": 2}).advance()
    assert (landed.counts.landed, landed.counts.skipped, landed.counts.quarantined) == (2, 2, 0)
    assert landed.counts.balanced
    assert engine.read("upsert") == [(1, "a", 1.0), (4, "d", 1.0)]
    assert summary(engine.pipeline) == []


def test_limits_count_what_does_not_fit_the_columns_that_the_batch_brings(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    flow = Flow(topic(), ["append"])
    source = {"topics": [flow.topic], "value": {"format": "connect_json"}}
    flow.overrides = {"source": source, "changes": {}, "dead_letters": {"max_records": 1}}
    engine = Engine(flow, connections, spark)

    def produce(kind: str, *ids: int) -> None:
        schema = {"type": "struct", "fields": [{"field": "id", "type": kind}]}
        engine.produce(*(Record(0, None, {"schema": schema, "payload": {"id": one}}) for one in ids))

    produce("int32", 1, 2)
    engine.advance()
    produce("int64", 3_000_000_000, 3_000_000_001)
    (landed,) = engine.advance()
    assert (landed.counts.quarantined, landed.new_columns) == (0, {"id": "int to long"})
    engine.produce(Record(0, None, "no JSON"), Record(0, None, "nor this"))
    more = {"type": "struct", "fields": [{"field": "more", "type": "string"}]}
    engine.produce(Record(0, None, {"schema": more, "payload": {"more": "a new field"}}))
    with pytest.raises(BadRecords, match=r"2 bad records, more than `dead_letters\.max_records: 1`.*no JSON"):
        engine.advance()
    rows = catalog(connections).require(flow.table("append")).scan().to_arrow()["id"].to_pylist()
    assert sorted(rows) == [1, 2, 3_000_000_000, 3_000_000_001]


def test_topic_gets_each_dead_letter_once(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    queue = topic("dlq")
    options: dict[str, object] = {"dead_letters": {"topic": queue}}
    engine = Engine(Flow(topic(), ["upsert"], overrides=options), connections, spark)
    engine.produce(put(1, "a"), Record(0, 2, "{bad"), Record(0, None, {"id": 3, "name": "a", "amount": 1, "op": "u"}))
    engine.advance()
    engine.produce(Record(0, 4, "{worse"))
    engine.advance()
    engine.advance()  # nothing new; what was sent is known
    received = read_all(connections, queue, 3)
    assert [(m.key(), m.value()) for m in received] == [
        (b'{"id": 2}', b"{bad"),
        (None, b'{"id": 3, "name": "a", "amount": 1, "op": "u"}'),
        (b'{"id": 4}', b"{worse"),
    ]
    headers = [
        {name.removeprefix("__connect.errors."): bytes(raw).decode() for name, raw in cast(Headers, message.headers())}
        for message in received
    ]
    assert [(h["topic"], h["partition"], h["offset"]) for h in headers] == [
        (engine.flow.topic, "0", offset) for offset in ("1", "2", "3")
    ]
    assert [(h["stage"], h["exception.class.name"]) for h in headers] == [
        ("VALUE_CONVERTER", "undecodable"),
        ("KEY_CONVERTER", "NullKey"),
        ("VALUE_CONVERTER", "undecodable"),
    ]
    assert all(h["connector.name"] == engine.flow.name and h["exception.message"] for h in headers)


def test_command_line(
    connections: Connections, spark: SparkSession, topic: Callable[..., str], batchmerge: Command
) -> None:
    before, after = narrowed(Engine(Flow(topic(), ["upsert"]), connections, spark))
    before.produce(put(1, "a"), put(2, "b", amount=LARGE), Record(0, 3, "{bad"))
    before.advance()

    def run(engine: Engine, *arguments: str) -> str:
        code, output = batchmerge(engine, "dead-letters", *arguments)
        assert code == 0, output
        return output

    groups, _ = json.JSONDecoder().raw_decode(run(before, "list", "", "--json"))
    assert [(g["kind"], g["records"]) for g in groups] == [("range", 1), ("undecodable", 1)]
    assert "{bad" not in run(before, "list", "", "--rows", "9")
    rows, _ = json.JSONDecoder().raw_decode(run(before, "list", "", "--rows", "9", "--values", "--json"))
    assert [(r["offset"], r["key"]) for r in rows] == [(1, '{"id": 2}'), (2, '{"id": 3}')]
    assert rows[1]["value"] == "{bad"
    assert "1 of 2 dead letters are recovered" in run(after, "retry", "")
    assert "0 of 1 dead letters are recovered" in run(after, "retry", "")
    assert after.read("upsert") == [(1, "a", 1), (2, "b", LARGE)]
