"""Records and topics at the edge: large, wide, deep, strange, many and none. They land, or become dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from jobs.dead_letters.listing import list_dead_letters
from resources.connections import Connections
from tests.kit.engine import Engine, catalog
from tests.kit.flow import Flow
from tests.kit.records import Record, bootstrap, produce
from tests.kit.waiting import PATIENCE

Topic = Callable[..., str]


def engine_for(
    connections: Connections,
    spark: SparkSession,
    topic: str,
    key: str,
    columns: dict[str, str],
    mode: str = "upsert",
) -> Engine:
    """A table of these columns, with a JSON key `id` of this type."""
    source = {
        "topics": [topic],
        "key": {"format": "json", "columns": {"id": key}},
        "value": {"format": "json", "columns": columns},
    }
    overrides: dict[str, object] = {"source": source, "changes": {"key": {"columns": ["id"]}}}
    return Engine(Flow(topic, [mode], overrides=overrides), connections, spark)


def send(connections: Connections, topic: str, *records: tuple[object, bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap(connections), "message.max.bytes": 30_000_000})
    for key, value in records:
        producer.produce(topic, value, json.dumps({"id": key}))
    assert producer.flush(PATIENCE) == 0


def table(engine: Engine) -> list[dict[str, Any]]:
    found = catalog(engine.connections).require(engine.flow.table(engine.flow.modes[0])).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: str(row["id"]))


def test_records_of_ten_megabytes_and_long_keys(connections: Connections, spark: SparkSession, topic: Topic) -> None:
    name = topic(config={"max.message.bytes": "30000000"})
    engine = engine_for(connections, spark, name, "string", {"text": "string"})
    large, key = "ä" * 5_000_000, "k" * 1_000_000
    good = json.dumps({"text": large}, ensure_ascii=False).encode()
    bad = json.dumps({"text": [large]}, ensure_ascii=False).encode()
    assert min(len(good), len(bad)) > 10_000_000
    send(connections, name, ("a", good), (key, b'{"text": "short"}'), ("b", bad))
    (landed,) = engine.advance()
    assert (landed.counts.landed, landed.counts.quarantined) == (2, 1)
    assert [(row["id"], row["text"]) for row in table(engine)] == [("a", large), (key, "short")]
    (dead_letter,) = list_dead_letters(engine.pipeline, 10, values=True)
    assert dead_letter.value == bad
    assert len(dead_letter.message) < 500


# Spark plans and compiles a MERGE of so many columns for a minute on two cores.
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_two_thousand_columns(mode: str, connections: Connections, spark: SparkSession, topic: Topic) -> None:
    name = topic()
    kinds = ["long", "string", "double", "boolean"]
    columns = {f"c{n}": kinds[n % 4] for n in range(2000)}
    engine = engine_for(connections, spark, name, "long", columns, mode)
    samples: list[object] = [7, "x", 0.5, True]
    full = {f"c{n}": samples[n % 4] for n in range(2000)}
    send(connections, name, (1, json.dumps(full).encode()), (2, b'{"c1999": false}'))
    engine.advance()
    first, second = table(engine)
    assert first == {"id": 1, **full}
    assert {column: value for column, value in second.items() if value is not None} == {"id": 2, "c1999": False}


def test_deep_nesting(connections: Connections, spark: SparkSession, topic: Topic) -> None:
    name, depth = topic(), 20
    kind, value = "long", 5
    document: Any = value
    for _ in range(depth):
        kind, document = f"struct<a: {kind}>", {"a": document}
    engine = engine_for(connections, spark, name, "long", {"deep": kind})
    bottomless = b'{"deep": null, "unknown": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    nested = b'{"deep": ' + b'{"a": ' * 5_000 + b"1" + b"}" * 5_000 + b"}"
    send(connections, name, (1, json.dumps({"deep": document}).encode()), (2, bottomless), (3, nested))
    (landed,) = engine.advance()
    rows = {row["id"]: row["deep"] for row in table(engine)}
    assert rows[1] == document
    assert landed.counts.landed + landed.counts.quarantined == 3
    assert 3 not in rows


def test_strange_characters_and_dates(connections: Connections, spark: SparkSession, topic: Topic) -> None:
    name = topic()
    engine = engine_for(connections, spark, name, "string", {"text": "string", "day": "date", "at": "timestamp"})
    good = {
        "null byte \0": b'{"text": "a\\u0000b"}',
        "pair of surrogates": b'{"text": "\\ud83d\\ude00"}',
        "first day": b'{"day": "0001-01-01", "at": "0001-01-01T00:00:00Z"}',
        "last day": b'{"day": "9999-12-31", "at": "9999-12-31T23:59:59.999999Z"}',
    }
    bad = {
        "raw null byte": b'{"text": "a\0b"}',
        "lone surrogate": b'{"text": "\\ud83d"}',
        "no UTF-8": b'{"text": "\xff"}',
        "no such day": b'{"day": "2023-02-29"}',
        "year 10000": b'{"day": "10000-01-01"}',
        "year 0": b'{"day": "0000-12-31"}',
        "day too late": b'{"day": 2932897}',
        "hour 25": b'{"at": "2023-01-01T25:00:00Z"}',
        "time too late": b'{"at": 253402300800000}',
        "no time at all": b'{"at": 9223372036854775808}',
    }
    send(connections, name, *good.items(), *bad.items())
    (landed,) = engine.advance()
    refused = {json.loads(one.key or b"")["id"] for one in list_dead_letters(engine.pipeline, 100, values=True)}
    assert refused == set(bad)
    assert landed.counts.landed == len(good)
    rows = {row["id"]: row for row in table(engine)}
    assert set(rows) == set(good)
    assert rows["null byte \0"]["text"] == "a\0b"
    assert rows["pair of surrogates"]["text"] == "\U0001f600"
    assert [str(rows[day]["day"]) for day in ("first day", "last day")] == ["0001-01-01", "9999-12-31"]
    assert rows["last day"]["at"].isoformat() == "9999-12-31T23:59:59.999999+00:00"


def test_hundred_partitions_with_a_record_each_then_idle(
    connections: Connections, spark: SparkSession, topic: Topic
) -> None:
    name = topic(partitions=100)
    engine = Engine(Flow(name, ["upsert"]), connections, spark)
    assert engine.advance() == [], "an idle topic makes no batch"
    everyone = [Record(n, n, {"id": n, "name": "a", "amount": 1.0, "op": "u"}) for n in range(100)]
    produce(bootstrap(connections), name, everyone)
    (landed,) = engine.advance()
    assert landed.counts.landed == 100
    assert landed.watermark.vtts is not None
    assert engine.read("upsert") == [(n, "a", 1.0) for n in range(100)]
    assert engine.advance() == []
    produce(bootstrap(connections), name, [Record(7, 7, {"id": 7, "name": "b", "amount": 1.0, "op": "u"})])
    (busy,) = engine.land()
    assert busy.watermark.caught_up_through is not None
    assert busy.watermark.caught_up_through > busy.watermark.vtts  # type: ignore[operator]
