"""Batches whose row groups are copied into a table of mode append byte for byte, by real tasks, beside others."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from jobs.maintenance.run import maintain_table
from resources.connections import Connections
from tests.kit.engine import Engine, catalog
from tests.kit.flow import Flow
from tests.kit.records import COLUMNS, Record, put

NAMES = ["Zürich", "", None, "全日空"]
KAFKA = ["partition", "offset"]


@pytest.fixture
def engine(connections: Connections, spark: SparkSession, topic: Callable[..., str]) -> Engine:
    maintenance = {"compaction": {"min_input_files": 2}, "snapshots": {"keep_days": 1e-6, "keep_last": 1}}
    overrides: dict[str, object] = {"maintenance": maintenance, "control": {"enabled": False}}
    flow = Flow(topic(partitions=2), ["append"], table_options={"metadata_columns": KAFKA}, overrides=overrides)
    return Engine(flow, connections, spark)


@pytest.fixture(autouse=True)
def no_group_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.changes.whole_groups.SMALL_ROWS", 0)


def created(first: int, count: int) -> list[Record]:
    return [put(n, NAMES[n % 4], "c", partition=n % 2) for n in range(first, first + count)]


def groups(engine: Engine) -> list[int]:
    """The number of row groups of each of the table's files, by their manifests."""
    files = [task.file for task in catalog(engine.connections).require(engine.flow.table("append")).scan().plan_files()]
    return sorted(len(file.split_offsets or ()) for file in files)


def by_all_readers(engine: Engine) -> list[list[tuple[object, ...]]]:
    """The ids with their names, as Spark and pyiceberg read them."""
    lake, table = catalog(engine.connections), engine.flow.table("append")
    rows = engine.spark.sql(f"SELECT * FROM {'.'.join(lake.spark_path(table))}").toPandas()
    scan: pa.Table = lake.require(table).scan().to_arrow()
    found = [scan.to_pylist(), pa.Table.from_pandas(rows).to_pylist()]
    return [sorted((row["id"], row["name"] or "", row["__partition"], row["amount"]) for row in one) for one in found]


def expected(records: list[Record]) -> list[tuple[object, ...]]:
    rows = ((r.partition, r.value) for r in records if isinstance(r.value, dict) and r.value["op"] != "d")
    return sorted((row["id"], row["name"] or "", partition, 1.0) for partition, row in rows)


def test_copied_row_groups_are_read_by_all_engines_and_maintained(engine: Engine) -> None:
    records = created(0, 300)
    for start in range(0, 300, 100):
        engine.produce(*records[start : start + 100])
        engine.land()
    merged = engine.merge("append")
    assert merged
    assert merged.merged.counts.inserted == 300
    # Put together, the rows would be one.
    assert sum(groups(engine)) >= 3
    assert by_all_readers(engine) == [expected(records)] * 2

    done = {one.task: one for one in maintain_table(engine.pipeline, engine.destination("append"))}
    assert not any(one.problem for one in done.values())
    assert by_all_readers(engine) == [expected(records)] * 2


def test_other_batches_are_put_together_beside_copied_ones(engine: Engine) -> None:
    """With deletes, which the table does not take, with dead letters, and landed before a column was declared."""
    first, second = created(0, 50), [*created(50, 50), put(1, "gone", "d", partition=1), Record(0, 999, "no JSON")]
    for records in (first, second):
        engine.produce(*records)
        engine.land()
    engine.advance()
    assert by_all_readers(engine) == [expected([*first, *second])] * 2
    before = sum(groups(engine))

    third = created(200, 40)
    engine.produce(*third)
    engine.land()
    wider = engine.with_value(columns={**COLUMNS, "more": "long"})
    fourth = [put(n, "x", "c", partition=n % 2, more=n) for n in range(300, 340)]
    wider.produce(*fourth)
    wider.advance()

    assert by_all_readers(wider) == [expected([*first, *second, *third, *fourth])] * 2
    found = catalog(engine.connections).require(engine.flow.table("append")).scan().to_arrow()
    assert sorted(found["more"].drop_null().to_pylist()) == list(range(300, 340))
    assert sum(groups(wider)) > before
