"""Landing straight into a lone append table: the same table, dead letters and accounts as with an intermediate one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from resources.connections import Connections
from resources.errors import BadRecords, ConfigurationError
from tests.kit import model
from tests.kit.engine import Engine, catalog
from tests.kit.flow import Flow
from tests.kit.records import Record, random_changes


@pytest.fixture
def engine(connections: Connections, spark: SparkSession, topic: Callable[..., str]) -> Engine:
    options = {"overrides": {"intermediate": {"direct": True}}, "table_options": {"metadata_columns": ["partition"]}}
    return Engine(Flow(topic(partitions=2), ["append"], **options), connections, spark)  # type: ignore[arg-type]


def dead_letters(engine: Engine) -> list[tuple[int, int]]:
    found = catalog(engine.connections).require(f"landing.{engine.flow.name}_tmp").scan().to_arrow().to_pylist()
    assert all(row["error"] for row in found)
    return sorted((row["kafka"]["partition"], row["kafka"]["offset"]) for row in found)


def test_table_and_dead_letters_equal_the_model(engine: Engine) -> None:
    records = random_changes(21, 120, 12, 2, bad=0.05)
    engine.tell(*records)
    engine.edited(batch={"max_records": 50}).advance(1)
    engine.advance()
    assert engine.read("append") == model.expected(records, "append")
    at: dict[int, int] = {}
    bad = []
    for record in records:
        offset = at.get(record.partition, 0)
        at[record.partition] = offset + 1
        if not model.is_good(record):
            bad.append((record.partition, offset))
    assert bad
    assert dead_letters(engine) == sorted(bad)
    known = engine.pipeline.intermediate.landed()
    assert known.complete
    landed = known.batches
    assert [b.number for b in landed] == [1, 2]
    assert all(b.counts.balanced for b in landed)
    assert sum(b.counts.read for b in landed) == len(records)
    assert sum(b.counts.quarantined for b in landed) == len(bad)
    with pytest.raises(ConfigurationError, match="direct"):
        engine.replay("append", 1, 2)


def test_bad_records_that_stop_the_batch_and_columns_that_go(engine: Engine) -> None:
    good = Record(0, 1, {"id": 1, "name": "a", "amount": 1.0, "op": "u"})
    engine.tell(good, Record(0, 2, "{"))
    with pytest.raises(BadRecords):
        engine.edited(on_bad_record="fail").advance()
    assert engine.pipeline.intermediate.committed() is None
    engine.advance()
    assert (engine.read("append"), dead_letters(engine)) == ([(1, "a", 1.0)], [(0, 1)])
    source = engine.document["source"]
    assert isinstance(source, dict)
    fewer = engine.edited(source={**source, "value": {"columns": {"id": "long", "name": "string", "op": "string"}}})
    engine.tell(Record(1, 3, {"id": 3, "name": "b", "op": "u"}))
    fewer.advance()
    table = catalog(engine.connections).require(engine.flow.table("append")).scan().to_arrow()
    assert sorted((r["id"], r["amount"]) for r in table.to_pylist()) == [(1, 1.0), (3, None)]
