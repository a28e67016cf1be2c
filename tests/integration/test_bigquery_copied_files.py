"""A lake that BigQuery does not read, and a staging folder that it does: landed files are copied, and their copies
loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.changes.landed_file import LandedFile
from jobs.destinations.bigquery.loading import Loader
from resources.connections import BigQueryConnection, Connections
from tests.kit import model
from tests.kit.bigquery import bigquery_flow, loads, rows, select
from tests.kit.engine import Engine
from tests.kit.flow import Flow
from tests.kit.interrupting import dying_at
from tests.kit.network import with_connection
from tests.kit.records import COLUMNS, Record, bootstrap, produce, random_changes

pytestmark = pytest.mark.usefixtures("bigquery_tables")

MODES = ["append", "upsert_delete", "delete"]


@pytest.fixture
def topic_(topic: Callable[..., str]) -> str:
    return topic(partitions=2)


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    folder = tmp_path / "staging"
    folder.mkdir()
    return folder


@pytest.fixture
def apart(connections: Connections, staging: Path) -> Connections:
    """BigQuery reads this folder, and no landed file."""
    known = connections.get("bigquery", BigQueryConnection)
    changed = known.model_copy(update={"reads": [], "staging": f"file://{staging}"})
    return with_connection(connections, "bigquery", changed)


def loaded(connections: Connections, flow: Flow) -> list[str]:
    """What each load took: copies of `landed` files, or files of `rows`."""
    of_jobs = [{Path(uri).name.partition("-")[0] for uri in job.source_uris} for job in loads(connections, flow)]
    return sorted(kind for (kind,) in of_jobs)


def left_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def check(connections: Connections, flow: Flow, records: Sequence[Record]) -> None:
    for mode in flow.modes:
        assert rows(connections, flow.table(mode)) == model.expected(list(records), mode), mode


def test_copies_give_what_shaped_rows_give(
    connections: Connections, apart: Connections, spark: SparkSession, topic_: str, staging: Path
) -> None:
    """Batch by batch, then several batches in one load."""
    more = {"at": "timestamp", "day": "date", "price": "decimal(12,2)", "place": "struct<x: double, on: boolean>"}
    every = {"topics": [topic_]}  # landed files are not loaded as they are into a table with a route
    copied, shaped = (bigquery_flow(topic_, MODES), bigquery_flow(topic_, MODES, route=every))
    engines = [Engine(flow, apart, spark).with_value(columns={**COLUMNS, **more}) for flow in (copied, shaped)]
    place = {"x": 1.5, "on": None}
    values: dict[str, Any] = {
        "at": "2024-02-29T23:59:59.999999Z",
        "day": "1969-12-31",
        "price": "-1.25",
        "place": place,
    }

    def change(key: int, name: str | None, op: str = "u", **others: Any) -> Record:
        return Record(key % 2, key, {"id": key, "name": name, "amount": None, "op": op, **others})

    batches = [
        [change(1, "a", **values), change(2, "b", **values), change(3, "c", place={"x": None}), change(4, None)],
        [change(1, "d", **{**values, "price": None}), change(2, "b", "d"), Record(1, 3, None), change(5, "e")],
        [change(2, "f", **{**values, "at": "0001-01-01T00:00:00Z"}), change(5, None, "d", **values)],
    ]
    for number, records in enumerate(batches, start=1):
        produce(bootstrap(connections), topic_, records)
        for engine in engines:
            engine.land()
            if number != 2:
                engine.merge_all()
    assert loaded(connections, copied) == ["landed"] * 6
    assert loaded(connections, shaped) == ["rows"] * 6
    for mode in MODES:
        found, expected = (
            sorted(map(repr, select(connections, f"SELECT * FROM `{flow.table(mode)}`"))) for flow in (copied, shaped)
        )
        assert found == expected
        assert found
    assert left_in(staging) == []


def test_rows_beside_dead_letters_are_shaped(
    apart: Connections, spark: SparkSession, topic_: str, staging: Path
) -> None:
    flow = bigquery_flow(topic_, ["append", "upsert_delete"])
    engine = Engine(flow, apart, spark)
    clean, records = random_changes(1, 80, 20, 2, bad=0), random_changes(2, 80, 20, 2, bad=0.1)
    for some in (clean, records):
        produce(bootstrap(apart), topic_, some)
        engine.advance()
    check(apart, flow, clean + records)
    assert loaded(apart, flow) == ["landed", "landed", "rows", "rows"]
    engine.replay("upsert_delete", 1, 1)
    check(apart, flow, clean + records)
    assert left_in(staging) == []


def test_run_that_dies_with_copies_is_followed_by_one_that_copies_again(
    apart: Connections, spark: SparkSession, topic_: str, staging: Path
) -> None:
    flow = bigquery_flow(topic_, ["append"])
    engine = Engine(flow, apart, spark)
    records = random_changes(3, 100, 20, 2, bad=0)
    produce(bootstrap(apart), topic_, records)
    engine.land()
    for point in ("bigquery.staged", "bigquery.loaded"):
        with dying_at(point):
            engine.merge_all()
    engine.merge_all()
    check(apart, flow, records)
    assert loaded(apart, flow) == ["landed"]
    assert left_in(staging) == []


def test_refused_copies_are_followed_by_rows(
    apart: Connections,
    spark: SparkSession,
    topic_: str,
    staging: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    flow = bigquery_flow(topic_, ["append", "upsert_delete"])
    records = random_changes(4, 100, 20, 2, bad=0)
    produce(bootstrap(apart), topic_, records)
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1")
    planned = Loader.landed_files

    def damaged(*given: Any) -> list[LandedFile]:
        first, *others = planned(*given)
        return [replace(first, path=f"file://{tmp_path}/damaged.parquet"), *others]

    monkeypatch.setattr(Loader, "landed_files", damaged)
    with caplog.at_level(logging.WARNING, "batchmerge"):
        Engine(flow, apart, spark).advance()
    assert "the landed files are not loaded as they are, rows are sent" in caplog.text
    check(apart, flow, records)
    assert loaded(apart, flow) == ["rows", "rows"]
    assert left_in(staging) == []


def test_file_that_cannot_be_copied_leaves_no_copy(
    apart: Connections, spark: SparkSession, topic_: str, staging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a task that fails the others may have copied their files."""
    flow = bigquery_flow(topic_, ["append"])
    records = random_changes(5, 100, 20, 2, bad=0)
    produce(bootstrap(apart), topic_, records)
    planned = Loader.landed_files
    gone = LandedFile("file:///nowhere/landed.parquet", 1, 1, (0,), ())
    monkeypatch.setattr(Loader, "landed_files", lambda *given: [*planned(*given), gone])
    Engine(flow, apart, spark).advance()
    check(apart, flow, records)
    assert loaded(apart, flow) == ["rows"]
    assert left_in(staging) == []
