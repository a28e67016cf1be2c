"""The transform of a pipeline, and the recipes of docs/transforms.md, on a real Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jobs.dead_letters.retry import retry
from jobs.landing.transform import analyse
from jobs.offsets import TopicPartition
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from resources.connections import Connections
from resources.errors import BadRecords
from tests.kit.engine import Engine, catalog
from tests.kit.flow import Flow
from tests.kit.records import bootstrap
from tests.kit.waiting import PATIENCE

VALUE = {"id": "long", "name": "string", "amount": "string", "secret": "string", "_op": "string"}


def made(
    connections: Connections,
    spark: SparkSession,
    topic: str,
    transform: object,
    value: dict[str, Any] | None = None,
    **parts: Any,
) -> Engine:
    source = {
        "topics": [topic],
        "key": {"columns": {"id": "long"}},
        "value": {"columns": VALUE} if value is None else value,
        "transform": transform,
    }
    changes = {"key": {"columns": ["id"]}, "op": {"field": "_op"}}
    return Engine(
        Flow(topic, ["upsert_delete"], overrides={"source": source, "changes": changes, **parts}), connections, spark
    )


def produce(connections: Connections, topic: str, values: list[Any]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap(connections)})
    for n, value in enumerate(values):
        raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(topic, key=json.dumps({"id": n}).encode(), value=raw)
    assert producer.flush(PATIENCE) == 0


def table(engine: Engine) -> list[dict[str, Any]]:
    rows = catalog(engine.connections).require(engine.flow.table("upsert_delete")).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def dead_letters(engine: Engine) -> list[tuple[int, str, str, str]]:
    rows = engine.spark.table(".".join(engine.pipeline.intermediate.path)).where("error is not null")
    picked = rows.select("kafka.offset", "error.stage", "error.kind", "error.message").collect()
    return sorted(tuple(row) for row in picked)


def value(n: int, amount: str, op: str = "c") -> dict[str, Any]:
    return {"id": n, "name": f"n{n}", "amount": amount, "secret": "s", "_op": op}


STATEMENT = """
select * except (secret, amount), cast(amount as int) as amount, 4 / (id - 6) as share, upper(name) as shout,
  _key.id as key_id, _topic,
  case when name = 'n3' then 'three is not wanted' end as _refused
from records where amount <> 'leave out'
"""


def test_rows_filters_refusals_and_failures(
    connections: Connections,
    spark: SparkSession,
    topic: Callable[..., str],
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = topic()
    engine = made(connections, spark, name, STATEMENT)
    values = [
        value(0, "5"),
        value(1, "leave out"),
        value(2, "no number"),
        value(3, "3"),
        b"{",
        value(5, "6"),
        value(6, "7"),
        None,
    ]
    produce(connections, name, values)
    (landed,) = engine.advance()
    counts = landed.counts
    assert (counts.read, counts.landed, counts.quarantined, counts.filtered) == (8, 3, 4, 1)
    assert table(engine) == [
        {"id": 0, "name": "n0", "amount": 5, "share": -2 / 3, "shout": "N0", "key_id": 0, "_topic": name},
        {"id": 5, "name": "n5", "amount": 6, "share": -4.0, "shout": "N5", "key_id": 5, "_topic": name},
    ]
    bad = dead_letters(engine)
    assert [(offset, stage, kind) for offset, stage, kind, _ in bad] == [
        (2, "transform", "transform"),
        (3, "transform", "refused"),
        (4, "value", "undecodable"),
        (6, "transform", "transform"),
    ]
    assert bad[0][3] == "the transform fails on this record: no value for column amount"
    assert bad[1][3] == "three is not wanted"
    assert "DIVIDE_BY_ZERO" in bad[3][3]
    printed = capfd.readouterr()
    assert "no number" not in printed.out + printed.err + caplog.text, (
        "Spark's client logs values unless that is switched off"
    )


@pytest.mark.parametrize("condition", ["name = 'keep'", "not name <> 'keep'"])
def test_a_delete_that_brings_its_key_alone_passes_the_condition(
    condition: str, connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    name, columns = topic(), {"id": "long", "name": "string"}
    rows = [("keep", "c"), ("keep", "c"), ("other", "c"), ("keep", "c")]
    values: list[Any] = [
        {"before": None, "after": {"id": n, "name": text}, "op": op} for n, (text, op) in enumerate(rows)
    ]
    values += [
        {"before": {"id": n, "name": text}, "after": None, "op": "d"}
        for n, text in [(0, None), (1, "keep"), (2, "other")]
    ]
    produce(connections, name, values)
    engine = made(
        connections,
        spark,
        name,
        f"select * from records where {condition}",
        {"format": "json", "envelope": "debezium", "columns": columns},
        changes={"key": {"columns": ["id"], "source": "value"}, "order_by": "arrival"},
    )
    (landed,) = engine.advance()
    assert (landed.counts.landed, landed.counts.filtered, landed.counts.quarantined) == (5, 2, 0)
    assert table(engine) == [{"id": 3, "name": "keep"}]


@pytest.mark.parametrize(
    ("expression", "bad", "error"),
    [
        ("url_decode(name)", {"name": "%zz"}, "CANNOT_DECODE_URL"),
        ("decode(unhex(name), 'utf-8')", {"name": "ff"}, "MALFORMED_CHARACTER_CODING"),
        ("to_number(amount, '999.99')", {"amount": "x"}, "INVALID_FORMAT"),
        ("from_utc_timestamp(_timestamp, secret)", {"secret": "Nowhere"}, "INVALID_TIMEZONE"),
        ("timestamp_seconds(id)", {"id": 10**15}, "ArithmeticException"),
    ],
)
def test_a_record_on_which_a_function_fails_is_a_dead_letter(
    expression: str,
    bad: dict[str, Any],
    error: str,
    connections: Connections,
    spark: SparkSession,
    topic: Callable[..., str],
) -> None:
    name, right = topic(), {**value(1, "1"), "name": "61", "secret": "Asia/Tokyo"}
    produce(connections, name, [right, {**right, **bad}, {**right, "id": 2}])
    statement = {"sql": f"select id, _op, cast({expression} as string) as found from records"}
    engine = made(connections, spark, name, statement)
    engine.advance()
    assert [row["id"] for row in table(engine)] == [0, 2]
    ((offset, _, kind, message),) = dead_letters(engine)
    assert (offset, kind) == (1, "transform")
    assert error in message


def test_a_failing_record_is_found_and_retried_beside_a_map(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    name = topic()
    produce(connections, name, [{**value(n, "1"), "secret": '{"a": "x"}'} for n in range(3)])

    def statement(share: str) -> dict[str, object]:
        sql = f"select id, _op, from_json(secret, 'map<string,string>') as m, {share} as share from records"
        return {"sql": sql, "columns": {"m": "map<string,string>", "share": "double"}}

    engine = made(connections, spark, name, statement("4 / id"))
    engine.advance()
    rows = [{"id": n, "m": [("a", "x")], "share": 4 / n} for n in (1, 2)]
    assert table(engine) == rows
    ((offset, _, kind, message),) = dead_letters(engine)
    assert (offset, kind) == (0, "transform")
    assert "DIVIDE_BY_ZERO" in message
    corrected = engine.with_source(transform=statement("try_divide(4, id)"))
    done = retry(corrected.pipeline)
    assert (done.tried, done.recovered) == (1, 1)
    assert table(corrected) == [{"id": 0, "m": [("a", "x")], "share": None}, *rows]


def test_any_number_of_records_may_fail_in_a_conversion(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    name = topic()
    statement = """select id, _op, cast(trim(amount) as double) as amount, to_date(name, 'dd.MM.yyyy') as day,
        to_timestamp(secret) as at from records"""
    right = {**value(0, " 1.5 "), "name": "24.12.2026", "secret": "2026-11-28 01:02:03"}
    wrong = [{"amount": "x"}, {"name": "2026-12-24"}, {"name": "31.02.2026"}, {"secret": ""}, {"secret": "25:00"}]
    records = [{**right, **wrong[n % 5], "id": n} if n % 7 else {**right, "id": n} for n in range(700)]
    nothing = {**right, "id": 700, "amount": None, "name": None, "secret": None}
    produce(connections, name, [*records, nothing])
    engine = made(connections, spark, name, statement)
    (landed,) = engine.advance()
    assert (landed.counts.landed, landed.counts.quarantined) == (101, 600)
    assert [row["id"] for row in table(engine)] == [*range(0, 700, 7), 700]
    assert {tuple(row.values())[1:] for row in table(engine)} == {
        (1.5, date(2026, 12, 24), datetime(2026, 11, 28, 1, 2, 3, tzinfo=UTC)),
        (None, None, None),
    }
    errors = Counter(
        message.removeprefix("the transform fails on this record: ") for *_, message in dead_letters(engine)
    )
    assert errors == {f"no value for column {c}": n for c, n in {"amount": 120, "day": 240, "at": 240}.items()}


@pytest.mark.slow
def test_dead_letters_are_retried_with_another_transform(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    name = topic()
    produce(connections, name, [value(0, "5"), value(1, "six")])
    engine = made(connections, spark, name, "select id, _op, cast(amount as int) as amount from records")
    engine.advance()
    assert [row["id"] for row in table(engine)] == [0]
    corrected = engine.with_source(transform="select id, _op, try_cast(amount as int) as amount from records")
    done = retry(corrected.pipeline)
    assert (done.tried, done.recovered) == (1, 1)
    assert table(corrected) == [{"id": 0, "amount": 5}, {"id": 1, "amount": None}]


def test_policy_fail(connections: Connections, spark: SparkSession, topic: Callable[..., str]) -> None:
    name = topic()
    produce(connections, name, [value(n, "5") for n in range(4)])
    one = "select id, _op, cast(if(id = 3, name, '1') as int) as x from records"
    with pytest.raises(BadRecords, match="transform: the transform fails on this record: no value for column x"):
        made(connections, spark, name, one, on_bad_record="fail").advance()


def test_check_has_spark_analyse_it(connections: Connections, spark: SparkSession, topic: Callable[..., str]) -> None:
    good = made(connections, spark, topic(), "select *, length(name) as n, _headers[0].key as h from records")
    analyse(spark, good.pipeline.spec.source)
    unknown = {"sql": "select id, _op, no_such_function(name) as x from records", "columns": {"x": "string"}}
    bad = made(connections, spark, topic(), unknown)
    with pytest.raises(PySparkException, match="UNRESOLVED_ROUTINE"):
        analyse(spark, bad.pipeline.spec.source)


OPEN = {"columns": {"amount": "string", "s": "struct<x: long>", "_op": "string"}, "unknown_fields": "add"}


def test_new_fields_pass_a_star_and_come_back_in_a_replay(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    name = topic()
    statement = "select * except (amount), cast(amount as int) as amount, 'prod' as env from records"
    engine = made(connections, spark, name, statement, OPEN)
    produce(connections, name, [{"amount": "1", "s": {"x": 1}, "_op": "c"}])
    engine.advance()
    assert table(engine) == [{"id": 0, "s": {"x": 1}, "amount": 1, "env": "prod"}]
    new = {"amount": "2", "s": {"x": 2, "y": 2}, "city": "Rome", "_op": "c"}
    produce(connections, name, [new, {**new, "env": "test"}])
    (landed,) = engine.advance()
    assert landed.new_columns == {"city": "text", "s.y": "long"}
    after = [{"id": 0, "s": {"x": 2, "y": 2}, "amount": 2, "env": "prod", "city": "Rome"}]
    assert table(engine) == after
    ((_, stage, kind, message),) = dead_letters(engine)
    assert (stage, kind) == ("value", "unknown")
    assert "two result columns have the name env" in message
    assert reread_from_kafka(engine.pipeline, from_offsets({TopicPartition(name, 0): 0}))
    engine.merge_all()
    assert table(engine) == after
    corrected = engine.with_source(value={**OPEN, "exclude": ["env"]})
    assert retry(corrected.pipeline).recovered == 1
    assert table(corrected) == [*after, {**after[0], "id": 1}]


def test_all_columns_behind_a_transform_are_left_to_the_records(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    name = topic()
    changes = {"key": {"columns": ["id"]}}
    engine = made(connections, spark, name, "select *, _topic as origin from records", {}, changes=changes)
    produce(connections, name, [{"a": 1}, {"b": "x"}, None])
    engine.advance()
    rows = [{"id": 0, "a": 1, "b": None, "origin": name}, {"id": 1, "a": None, "b": "x", "origin": name}]
    assert table(engine) == rows
