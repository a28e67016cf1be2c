"""Whole pipelines on a real REST catalog, and what only such a catalog can do: one commit for all tables of a batch."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dagster as dg
import pytest
from pyiceberg.schema import Schema
from pyspark.sql import SparkSession

from jobs.connections_file import load_connections
from jobs.destinations.iceberg import destination as iceberg_destination
from jobs.maintenance.run import maintain_landing, maintain_table
from jobs.protocol import merge_together
from resources.connections import Connections
from resources.errors import ConfigurationError, SchemaRefused
from tests.kit import model
from tests.kit.engine import Engine, catalog, session
from tests.kit.flow import Flow, rows
from tests.kit.records import COLUMNS, KEY, Record, bootstrap, produce, put, random_changes
from tests.orchestration.launching import advance

MODES = ["append", "upsert_delete"]
TOGETHER: dict[str, object] = {"commit": "together", "control": {"enabled": False}}


@pytest.fixture(scope="module")
def rest(rest_file: Path) -> Connections:
    return load_connections(rest_file)


@pytest.fixture(scope="module")
def rest_spark(rest: Connections) -> Iterator[SparkSession]:
    with session(rest) as opened:
        yield opened


def test_pipeline_on_a_rest_catalog(rest: Connections, rest_spark: SparkSession, topic: Callable[..., str]) -> None:
    coordinates = {"metadata_columns": ["topic", "partition", "offset"]}
    maintenance: dict[str, object] = {"compaction": {"min_input_files": 2}, "manifests": {"min_count": 2}}
    flow = Flow(topic(partitions=2), MODES, 40, {"maintenance": maintenance}, coordinates)
    records = random_changes(5, 80, 9, 2)
    produce(bootstrap(rest), flow.topic, records)
    one = Engine(flow, rest, rest_spark)
    one.advance()
    assert one.replay("append", 1, 2)
    done = list(maintain_landing(one.pipeline))
    for destination in one.pipeline.destinations():
        done += maintain_table(one.pipeline, destination)
    assert [str(d) for d in done if d.problem or d.note] == []
    more = random_changes(6, 30, 9, 2)
    produce(bootstrap(rest), flow.topic, more)
    one.advance()
    for mode in MODES:
        assert one.read(mode) == model.expected([*records, *more], mode), mode


def test_columns_evolve_on_a_rest_catalog(
    rest: Connections, rest_spark: SparkSession, topic: Callable[..., str]
) -> None:
    def source(name: str, **columns: str) -> dict[str, object]:
        key, value = {"format": "json", "columns": KEY}, {"format": "json", "columns": {**COLUMNS, **columns}}
        return {"topics": [name], "key": key, "value": value}

    flow = Flow(topic(), ["upsert"])
    one = Engine(flow, rest, rest_spark).edited(source=source(flow.topic, size="int"))
    produce(bootstrap(rest), flow.topic, [Record(0, 1, {"id": 1, "name": "a", "amount": 1.0, "op": "u", "size": 1})])
    one.advance()
    wider = one.edited(source=source(flow.topic, size="long", extra="string"))
    value = {"id": 2, "name": "b", "amount": 1.0, "op": "u", "size": 2**40, "extra": "x"}
    produce(bootstrap(rest), flow.topic, [Record(0, 2, value)])
    wider.advance()
    table = catalog(rest).require(flow.table("upsert")).scan().to_arrow().to_pylist()
    assert sorted((r["id"], r["size"], r["extra"]) for r in table) == [(1, 1, None), (2, 2**40, "x")]
    with pytest.raises(SchemaRefused):
        wider.edited(source=source(flow.topic, size="string", extra="string")).advance()


def test_a_namespace_is_made_once_by_many_at_once(rest: Connections) -> None:
    """As by members of a pipeline whose first tables are made side by side."""
    namespaces = [f"n{uuid.uuid4().hex}" for _ in range(5)]
    shared = catalog(rest)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: shared.create(name, Schema()), [f"{n}.t{i}" for n in namespaces for i in range(8)]))
    assert all(shared.load(f"{namespace}.t{i}") for namespace in namespaces for i in range(8))


def test_tables_of_a_batch_are_committed_together(
    rest: Connections, rest_spark: SparkSession, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer changes one table in the middle: neither table gets the batch, and both get it in the next try."""
    flow = Flow(topic(), ["upsert", "upsert_delete"], overrides=TOGETHER)
    one = Engine(flow, rest, rest_spark)

    produce(bootstrap(rest), flow.topic, [put(1)])
    one.advance()
    produce(bootstrap(rest), flow.topic, [put(2)])
    one.land()
    seen: list[str] = []
    between: list[int] = []

    def failpoint(name: str) -> None:
        seen.append(name)
        if name == "together.written" and seen.count(name) == 1:
            table = catalog(rest).require(flow.table("upsert"))
            table.append(table.scan().to_arrow().slice(0, 0))
        if name == "merge.planned" and seen.count(name) == 3:
            between.extend(len(one.read(mode)) for mode in flow.modes)

    monkeypatch.setattr("jobs.protocol.failpoint", failpoint)
    monkeypatch.setattr(iceberg_destination, "failpoint", seen.append)
    done = merge_together(one.pipeline)
    assert [table.merged.after.batch_number for table in done if table.merged] == [2, 2]
    assert seen.count("together.written") == 2
    assert between == [1, 1]
    for mode in flow.modes:
        assert [row[0] for row in one.read(mode)] == [1, 2], mode
    assert [table.merged for table in merge_together(one.pipeline)] == [None, None]


def test_run_in_dagster_commits_all_tables_in_the_first_ones_step(
    rest_file: Path, rest: Connections, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(rest_file))
    flow = Flow(topic(), MODES, overrides=TOGETHER)
    records = random_changes(9, 40, 9, 1)
    produce(bootstrap(rest), flow.topic, records)
    with dg.instance_for_test() as instance:
        result = advance(instance, flow)
    assert result.success
    first, second = (next(step for step in result.tables if mode in step.asset) for mode in MODES)
    assert (first.metadata["last batch"], second.metadata["batches"]) == (1, 0)
    for mode in MODES:
        assert rows(rest, flow.table(mode)) == model.expected(records, mode), mode


def test_catalog_without_transactions_is_named(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    one = Engine(Flow(topic(), MODES, overrides=TOGETHER), connections, spark)
    with pytest.raises(ConfigurationError, match="cannot commit several tables at once"):
        merge_together(one.pipeline)
