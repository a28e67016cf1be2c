"""`ignore_case` and `force_optional` on real tables."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from jobs.iceberg.schema import iceberg_schema
from resources.connections import Connections
from resources.errors import SchemaRefused
from tests.kit.engine import Engine, catalog
from tests.kit.flow import Flow
from tests.kit.records import bootstrap
from tests.kit.waiting import PATIENCE


def test_records_and_table_in_other_spellings(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    flow = Flow(topic(), ["append", "upsert_delete"])
    flow.overrides["source"] = {
        "topics": [flow.topic],
        "key": {"columns": {"Id": "long"}},
        "value": {"columns": {"Id": "long", "name": "string not null", "op": "string"}},
    }
    flow.overrides["changes"] = {"key": {"columns": ["Id"]}, "op": {"field": "op"}}
    strict = Engine(flow, connections, spark)
    lake = catalog(connections)
    theirs = [pa.field("ID", pa.int64(), False), pa.field("NAME", pa.string(), False), pa.field("extra", pa.string())]
    for mode in flow.modes:
        lake.create(flow.table(mode), iceberg_schema(pa.schema(theirs)))
    producer = Producer({"bootstrap.servers": bootstrap(connections)})
    for key, value in [
        ({"ID": 1}, {"iD": 1, "NAME": "a", "Op": "c"}),
        ({"id": 2}, {"id": 2, "Name": "b", "op": "c"}),
        ({"Id": 1}, {"Id": 1, "name": "c", "OP": "u"}),
        ({"id": 2}, None),
    ]:
        producer.produce(flow.topic, key=json.dumps(key), value=json.dumps(value) if value else None)
    assert producer.flush(PATIENCE) == 0
    engine = strict.edited(ignore_case=True, force_optional=True)
    (landed,) = engine.advance()
    assert (landed.counts.landed, landed.counts.quarantined) == (4, 0)
    found = {
        m: lake.require(flow.table(m)).scan().to_arrow().sort_by([("ID", "ascending"), ("NAME", "ascending")])
        for m in flow.modes
    }
    assert {table.schema.names == ["ID", "NAME", "extra"] for table in found.values()} == {True}
    assert found["append"].select(["ID", "NAME"]).to_pylist() == [
        {"ID": 1, "NAME": "a"},
        {"ID": 1, "NAME": "c"},
        {"ID": 2, "NAME": "b"},
    ]
    assert found["upsert_delete"].select(["ID", "NAME"]).to_pylist() == [{"ID": 1, "NAME": "c"}]
    name = lake.require(flow.table("append")).schema().find_field("NAME")
    assert not name.required, "force_optional has made it so"
    with pytest.raises(SchemaRefused, match="by upper and lower case only"):
        strict.destination("append").prepare()
