"""Trying dead letters again: into every system, past letters that stay, with headers, and where nothing is merged."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from jobs.dead_letters.listing import list_dead_letters, summary
from jobs.dead_letters.retry import retry
from jobs.maintenance.run import maintain_landing
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from orchestration.cli import dead_letters as cli
from resources.connections import Connections
from resources.errors import TerminalError
from tests.kit.dead_letters import LARGE, WHERE, narrowed
from tests.kit.engine import Engine
from tests.kit.flow import Flow
from tests.kit.records import Record, bootstrap, put
from tests.kit.resets import reset_offsets
from tests.kit.waiting import PATIENCE

# Retention at once; and no other maintenance.
EAGER = {"landed": {"keep_days": 1e-6}, "compaction": {"enabled": False}, "manifests": {"enabled": False}}
VALUE = {"id": "long", "name": "string", "amount": "string", "op": "string"}


def eager(connections: Connections, spark: SparkSession, topic: str, mode: str) -> tuple[Engine, Engine]:
    """A pipeline of which retention removes all that it may, before and after its file was corrected."""
    return narrowed(
        Engine(Flow(topic, [mode], table_options=WHERE, overrides={"maintenance": EAGER}), connections, spark)
    )


def land_later(engine: Engine, under: Engine) -> None:
    """Two later batches, landed and merged under one of the pipeline files."""
    for key in (2, 3):
        engine.produce(put(key, "later"))
        under.advance()


@pytest.mark.slow
def test_retry_that_dies_before_its_merges_is_finished_by_the_next_run(
    connections: Connections, spark: SparkSession, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention runs in between: it keeps the batch of the recovered row. The error of `dies` stands for SIGKILL."""
    narrow, engine = eager(connections, spark, topic(), "append")
    engine.produce(put(1, "large", amount=LARGE))
    narrow.advance()
    land_later(engine, narrow)

    def dies(point: str) -> None:
        if point == "land.published":
            raise TerminalError("died")

    with monkeypatch.context() as patch:
        patch.setattr("jobs.landing.publish.failpoint", dies)
        with pytest.raises(TerminalError, match="died"):
            retry(engine.pipeline)
    assert not [done.problem for done in maintain_landing(engine.pipeline) if done.problem]
    kept = {b.number for b in engine.pipeline.intermediate.landed().batches}
    assert engine.merge("append")
    assert engine.read("append") == [(1, "large", LARGE), (2, "later", 1), (3, "later", 1)]
    list(maintain_landing(engine.pipeline))
    assert kept == {1, 2, 3, 4}
    assert {b.number for b in engine.pipeline.intermediate.landed().batches} == {4}
    assert list(list_dead_letters(engine.pipeline, 9)) == [], "nor is the dead letter open again"


def test_retention_that_failed_in_the_middle_opens_no_recovered_dead_letter(
    connections: Connections, spark: SparkSession, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has removed the batch that revises: only rows show that there was one."""
    narrow, engine = eager(connections, spark, topic(), "append")
    engine.produce(put(1, "large", amount=LARGE))
    narrow.advance()
    retry(engine.pipeline)
    land_later(engine, engine)

    def fails(*_: object) -> None:
        raise TerminalError("died")

    with monkeypatch.context() as patch:
        patch.setattr("jobs.maintenance.retention.expire_these", fails)
        assert [done.problem for done in maintain_landing(engine.pipeline) if done.problem]
    list(maintain_landing(engine.pipeline))
    assert [b.number for b in engine.pipeline.intermediate.landed().batches] == [4]
    assert list(list_dead_letters(engine.pipeline, 9)) == []


@pytest.mark.slow
def test_dead_letter_that_a_reset_has_landed_again_is_open_whatever_was_read_before(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    """A record was landed twice: the first landing was read again since, and is older than the second one."""
    narrow, engine = eager(connections, spark, topic(), "upsert")
    engine.produce(put(1, "older"), put(1, "large", amount=LARGE))
    narrow.advance()
    everything = from_offsets(dict.fromkeys(narrow.pipeline.topic_state().stable, 0))
    assert reread_from_kafka(narrow.pipeline, everything)
    reset_offsets(narrow.pipeline, narrow.pipeline.topic_state().first)
    narrow.advance()
    assert [dead_letter.batch for dead_letter in list_dead_letters(engine.pipeline, 9)] == [1, 4]
    list(maintain_landing(narrow.pipeline))
    assert 4 in [dead_letter.batch for dead_letter in list_dead_letters(engine.pipeline, 9)]
    retry(engine.pipeline)
    assert list(list_dead_letters(engine.pipeline, 9)) == []
    assert engine.read("upsert") == [(1, "large", LARGE)]


def test_dead_letters_of_another_meaning_take_their_place_too(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    """`changes` was changed and accepted. The tables have what was landed before as it was meant then."""
    flow = Flow(topic(), ["upsert"], table_options=WHERE)
    narrow, engine = narrowed(Engine(flow, connections, spark))
    engine.produce(put(1, "large", amount=LARGE))
    narrow.advance()
    changes = engine.document["changes"]
    other = engine.edited(changes={**changes, "op": {**changes["op"], "delete": ["d", "x"]}})
    reset_offsets(other.pipeline)
    engine.produce(put(2, "fine"), Record(0, 3, "{bad"))
    other.advance()
    assert other.read("upsert") == [(2, "fine", 1)]
    done = retry(other.pipeline)
    assert (done.tried, done.recovered) == (2, 1)
    assert other.read("upsert") == [(1, "large", LARGE), (2, "fine", 1)]
    assert [dead_letter.offset for dead_letter in list_dead_letters(other.pipeline, 9)] == [2]


def transforming(engine: Engine, sql: str) -> Engine:
    return engine.with_value(columns=VALUE).with_source(transform=sql)


@pytest.mark.slow
def test_a_dead_letter_that_the_transform_fails_on_stops_no_other(
    connections: Connections, spark: SparkSession, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(Flow(topic(), ["upsert"]), connections, spark)
    # The conversion is in a function, so it is not tried first.
    before = transforming(engine, "select id, name, op, abs(cast(amount as int)) as amount from records")
    amounts = ["5", "six", "seven", "leave out", "six", "eight"]
    sent = [put(n, "a", amount=amount) for n, amount in enumerate(amounts)]
    for batch in (sent[:3], [*sent[3:], Record(0, 6, "{bad")]):
        engine.produce(*batch)
        before.advance()
    assert before.read("upsert") == [(0, "a", 5)]
    number = "abs(cast(case when amount = 'six' then '6' else amount end as int))"
    after = transforming(engine, f"select id, name, op, {number} as amount from records where amount <> 'leave out'")
    monkeypatch.setattr(cli, "each_in_turn", lambda _n, _c, _w, work, _p: ([work(after.pipeline)], []))
    lines = CliRunner().invoke(cli.dead_letters, ["retry", "p"], catch_exceptions=False).stdout.splitlines()
    name = engine.flow.topic
    fails = "transform, transform: the transform fails on this record: Spark's CAST_INVALID_INPUT"
    assert lines[:5] == [
        "2 of 6 dead letters are recovered",
        f"  stays: {name}-0@2: {fails}",
        f"  stays: {name}-0@3: transform, left_out: the pipeline file leaves this record out now",
        f"  stays: {name}-0@5: {fails}",
        next(line for line in lines if "value, undecodable" in line),
    ]
    assert after.read("upsert") == [(0, "a", 5), (1, "a", 6), (4, "a", 6)]
    groups = [(g.stage, g.kind, g.records) for g in summary(after.pipeline)]
    assert groups == [("transform", "left_out", 1), ("transform", "transform", 2), ("value", "undecodable", 1)]
    first, second, again = after.pipeline.intermediate.landed().batches
    assert [(b.counts.landed, b.counts.quarantined) for b in (first, second)] == [(1, 2), (0, 4)]
    assert (again.counts.landed, again.counts.quarantined, again.counts.recovered) == (2, 1, 3)
    # With their bytes: the next file takes them all but one.
    last = transforming(engine, "select id, name, op, coalesce(try_cast(amount as int), 0) as amount from records")
    assert retry(last.pipeline).recovered == 3
    assert last.read("upsert") == [(0, "a", 5), (1, "a", 6), (2, "a", 0), (3, "a", 0), (4, "a", 6), (5, "a", 0)]


@pytest.mark.slow
def test_dead_letters_keep_headers_where_the_transform_reads_them(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    engine = Engine(Flow(topic(), ["upsert"]), connections, spark)
    producer = Producer({"bootstrap.servers": bootstrap(connections)})

    def send(key: int, amount: str, headers: list[tuple[str, str | bytes | None]]) -> None:
        value = json.dumps({"id": key, "name": "n", "amount": amount, "op": "u"})
        producer.produce(engine.flow.topic, key=json.dumps({"id": key}), value=value, headers=headers)
        assert producer.flush(PATIENCE) == 0

    plain = transforming(engine, "select id, name, op, cast(amount as int) as amount from records")
    send(1, "early", [("h", b"lost")])
    plain.advance()
    header = "coalesce(cast(_headers[0].value as string), 'none')"
    reads = transforming(engine, f"select id, {header} as name, op, cast(amount as int) as amount from records")
    send(2, "six", [("h", b"kept")])
    send(3, "seven", [])
    reads.advance()
    corrected = transforming(engine, f"select id, {header} as name, op, coalesce(try_cast(amount as int), 0) as amount "
                                     "from records")  # fmt: skip
    # They stay with a dead letter whatever else is found to be wrong with it meanwhile.
    none = transforming(engine, "select id, name, op, 0 as amount from records where id > 100")
    assert {dead_letter.kind for dead_letter in retry(none.pipeline).stay} == {"left_out"}
    done = retry(corrected.pipeline)
    assert (done.tried, done.recovered) == (3, 2)
    assert [(one.offset, "without its headers" in one.message) for one in done.stay] == [(0, True)]
    assert corrected.read("upsert") == [(2, "kept", 0), (3, "none", 0)]
