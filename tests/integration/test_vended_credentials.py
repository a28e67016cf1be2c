"""A catalog that vends credentials for each table, which end: also in the middle of a write.

Spark reaches S3 only where the lake is there: `make s3` runs this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobs.maintenance.run import maintain_landing, maintain_table
from resources.connections import Connections, IcebergConnection
from resources.errors import TransientError
from tests.kit import model
from tests.kit.engine import Engine, catalog, session
from tests.kit.flow import Flow, rows
from tests.kit.network import with_connection
from tests.kit.records import bootstrap, produce, random_changes
from tests.kit.vending_catalog import Vended, vending_catalog

pytestmark = pytest.mark.slow

MODES = ["append", "upsert_delete"]


@dataclass
class Lake:
    vended: Vended
    connections: Connections


@pytest.fixture
def lake(connections: Connections, tmp_path: Path) -> Iterator[Lake]:
    if "s3.endpoint" not in connections.get("lake", IcebergConnection).properties:
        pytest.skip("the lake is not in S3; `make s3` has it there")
    with vending_catalog(tmp_path / "catalog") as (vended, connection):
        yield Lake(vended, with_connection(connections, "lake", connection))


def _flow(topic: str, max_records: int) -> Flow:
    return Flow(topic, MODES, max_records=max_records, overrides={"control": {"enabled": False}})


def test_pipeline_with_credentials_of_its_tables(lake: Lake, topic: Callable[..., str]) -> None:
    flow = _flow(topic(partitions=2), 100)
    records = random_changes(1, 250, 40, 2)
    produce(bootstrap(lake.connections), flow.topic, records)
    with session(lake.connections) as spark:
        engine = Engine(flow, lake.connections, spark)
        engine.advance()
        done = list(maintain_landing(engine.pipeline))
        for destination in engine.pipeline.destinations():
            done += maintain_table(engine.pipeline, destination)
        assert [str(one) for one in done if one.problem] == []
        for mode in MODES:
            assert rows(lake.connections, flow.table(mode)) == model.expected(records, mode), mode


def test_a_write_goes_on_when_its_credentials_end(lake: Lake, topic: Callable[..., str]) -> None:
    flow, vended = _flow(topic(partitions=4), 300_000), lake.vended
    records = random_changes(2, 220_000, 5_000, 4)
    produce(bootstrap(lake.connections), flow.topic, records)
    with session(lake.connections) as spark:
        engine = Engine(flow, lake.connections, spark)
        # A file takes some four requests: less than half of the time, within which nobody asks for others.
        vended.seconds = vended.declared = 16
        vended.delay = 1.5
        for work in (engine.land, lambda: engine.merge("append")):
            began = time.monotonic()
            work()
            assert time.monotonic() - began > vended.seconds, "too short to need others"
        vended.delay = 0
        assert vended.refused == 0
        assert rows(lake.connections, flow.table("append")) == model.expected(records, "append")


@pytest.mark.parametrize("renews", [True, False])
def test_spark_goes_on_when_its_credentials_end(renews: bool, lake: Lake, topic: Callable[..., str]) -> None:
    """Where the catalog names an endpoint for it; elsewhere the run fails, and is tried again."""
    flow, vended = _flow(topic(partitions=4), 300_000), lake.vended
    records = random_changes(5, 220_000, 5_000, 4)
    produce(bootstrap(lake.connections), flow.topic, records)
    vended.renews = renews
    with session(lake.connections) as spark:
        engine = Engine(flow, lake.connections, spark)
        vended.seconds = vended.declared = 16
        vended.delay = 1.5
        engine.land()
        with nullcontext() if renews else pytest.raises(TransientError, match=r"ha(s|ve) expired"):
            began = time.monotonic()
            engine.merge("upsert_delete")
            assert time.monotonic() - began > vended.seconds, "too short to need others"
        vended.delay = 0
        assert renews == (
            rows(lake.connections, flow.table("upsert_delete")) == model.expected(records, "upsert_delete")
        )


def test_credentials_of_a_table_reach_no_other(lake: Lake, topic: Callable[..., str]) -> None:
    flow = _flow(topic(), 100)
    produce(bootstrap(lake.connections), flow.topic, random_changes(4, 20, 10, 1))
    with session(lake.connections) as spark:
        Engine(flow, lake.connections, spark).advance()
    own, other = (catalog(lake.connections).require(flow.table(mode)) for mode in MODES)
    with own.io.new_input(own.metadata_location).open() as file:
        assert file.read()
    with pytest.raises(OSError, match=r"(?i)access.?denied|forbidden|403"):
        own.io.new_input(other.metadata_location).open()


def test_what_ends_too_early_is_tried_again(lake: Lake, topic: Callable[..., str]) -> None:
    """The catalog says that they are good for longer than they are."""
    flow, vended = _flow(topic(partitions=2), 100), lake.vended
    records = random_changes(3, 80, 20, 2)
    produce(bootstrap(lake.connections), flow.topic, records)
    with session(lake.connections) as spark:
        engine = Engine(flow, lake.connections, spark)
        engine.pipeline.intermediate.prepare()
        vended.seconds = 0
        with pytest.raises(TransientError, match="credentials"):
            engine.land()
        vended.seconds = 900
        engine.advance()
        for mode in MODES:
            assert rows(lake.connections, flow.table(mode)) == model.expected(records, mode), mode
    assert vended.refused
