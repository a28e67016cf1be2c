"""A lake in S3 that is busy or slow, and whose answers get lost: batches are late, and nothing is lost.

Where the lake is elsewhere there is no such store: `make s3` runs this. Google's client goes on trying by itself for a
quarter of an hour, longer than a step may take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from resources.connections import Connections, IcebergConnection
from resources.errors import TransientError
from tests.kit import model
from tests.kit.engine import Engine, session
from tests.kit.faulty_store import Faults, faulty_store
from tests.kit.flow import Flow, rows
from tests.kit.network import with_connection
from tests.kit.records import Record, bootstrap, produce, random_changes

pytestmark = pytest.mark.slow

MODES = ["append", "upsert_delete"]
ENDPOINT = "s3.endpoint"


@dataclass
class Lake:
    """Attributes:
    connections: by which the lake is reached through the faults.
    """

    faults: Faults
    connections: Connections


@pytest.fixture
def lake(connections: Connections) -> Iterator[Lake]:
    known = connections.get("lake", IcebergConnection)
    if ENDPOINT not in known.properties:
        pytest.skip("the lake is not in S3; `make s3` has it there")
    with faulty_store(known.properties[ENDPOINT]) as (faults, own):
        parts = {part: {**getattr(known, part), ENDPOINT: own} for part in ("properties", "spark_properties")}
        yield Lake(faults, with_connection(connections, "lake", known.model_copy(update=parts)))


def test_batches_are_late_and_nothing_is_lost(lake: Lake, connections: Connections, topic: Callable[..., str]) -> None:
    flow = Flow(topic(partitions=2), MODES, max_records=100, overrides={"control": {"enabled": False}})
    with session(lake.connections) as spark:
        engine = Engine(flow, lake.connections, spark)
        records: list[Record] = []
        for number, (busy, lost, delay) in enumerate([(0.0, 0.0, 0.0), (0.2, 0.0, 0.02), (0.05, 0.15, 0.0)]):
            more = random_changes(number, 150, 40, 2)
            produce(bootstrap(connections), flow.topic, more)
            records += more
            lake.faults.busy, lake.faults.lost, lake.faults.delay = busy, lost, delay
            _until_done(engine)
            lake.faults.busy, lake.faults.lost, lake.faults.delay = 0.0, 0.0, 0.0
            for mode in MODES:
                assert rows(connections, flow.table(mode)) == model.expected(records, mode), (number, mode)
    assert lake.faults.seen["busy"] > 10
    assert lake.faults.seen["lost"] > 3


def _until_done(engine: Engine) -> None:
    """As often as a step is tried again; what cannot pass is not, and fails the test."""
    for _ in range(20):
        try:
            engine.advance()
        except TransientError:
            continue
        return
    raise AssertionError("twenty tries were of no avail")


def test_store_that_refuses_everything_is_tried_again(lake: Lake, topic: Callable[..., str]) -> None:
    flow = Flow(topic(), ["append"], overrides={"control": {"enabled": False}})
    with session(lake.connections) as spark:
        engine = Engine(flow, lake.connections, spark)
        records = random_changes(1, 20, 10, 1)
        produce(bootstrap(lake.connections), flow.topic, records)
        engine.advance()
        more = random_changes(2, 20, 10, 1)
        produce(bootstrap(lake.connections), flow.topic, more)
        lake.faults.busy = 1.0
        with pytest.raises(TransientError):
            engine.advance()
        lake.faults.busy = 0.0
        engine.advance()
        assert rows(lake.connections, flow.table("append")) == model.expected([*records, *more], "append")
