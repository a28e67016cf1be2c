"""A lake in an object store that is busy or slow, and whose answers get lost: batches are late, and nothing is lost.

Where the lake is elsewhere there is no such store: `make s3` and `make gcs` run this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobs.connections_file import load_connections
from resources.connections import Connections, IcebergConnection
from resources.errors import TransientError
from resources.local import stack as local_stack
from tests.kit import model
from tests.kit.engine import Engine, session
from tests.kit.faulty_store import Faults, faulty_store
from tests.kit.flow import Flow, rows
from tests.kit.kinds import KINDS, runnable, with_others
from tests.kit.network import with_connection
from tests.kit.records import bootstrap, produce, random_changes
from tests.kit.story import Story, targets

pytestmark = pytest.mark.slow

S3, GCS = "s3.endpoint", "gcs.service.host"
# Shares of requests that are refused and of answers that are lost, and the seconds that each takes. Google's clients
# go on trying by themselves for a quarter of an hour, longer than a step may take: of them less is asked.
FAULTS = {S3: [(0.2, 0.0, 0.02), (0.05, 0.15, 0.0)], GCS: [(0.05, 0.0, 0.02)]}


@dataclass
class Lake:
    """Attributes:
    endpoint: the property that names the store.
    connections: by which the lake is reached through the faults.
    """

    endpoint: str
    faults: Faults
    connections: Connections


@pytest.fixture(scope="module")
def services(stack: Path) -> Connections:
    """Connections to the services of every kind that can run here."""
    local_stack.up(stack, [k.service for k in KINDS.values() if k.service and runnable(k)], print)
    return load_connections(with_others(stack))


@pytest.fixture
def lake(services: Connections) -> Iterator[Lake]:
    known = services.get("lake", IcebergConnection)
    endpoint = next((name for name in FAULTS if name in known.properties), None)
    if endpoint is None:
        pytest.skip("the lake is not in an object store; `make s3` and `make gcs` have it there")
    with faulty_store(known.properties[endpoint]) as (faults, own):
        parts = {part: {**getattr(known, part), endpoint: own} for part in ("properties", "spark_properties")}
        yield Lake(endpoint, faults, with_connection(services, "lake", known.model_copy(update=parts)))


def test_batches_are_late_and_nothing_is_lost(lake: Lake, topic: Callable[..., str]) -> None:
    """In tables of each kind: Iceberg writes to the store, ClickHouse and BigQuery get what is read from there."""
    with session(lake.connections) as spark:
        story = Story.of(topic(partitions=2), lake.connections, spark)
        wanted = [t for t in targets("append", "upsert_delete") if runnable(t.kind)]
        tables = [story.table(target) for target in wanted]
        for number, (busy, lost, delay) in enumerate([(0.0, 0.0, 0.0), *FAULTS[lake.endpoint]]):
            story.produce(*random_changes(number, 150, 40, 2))
            lake.faults.set(busy, lost, delay)
            for work in (lambda: story.land(100), *(table.merge for table in tables)):
                _until_done(work)
            lake.faults.set()
            for table in tables:
                assert table.rows() == model.expected(story.records, table.target.mode), (number, str(table.target))
    assert lake.faults.seen["busy"] > 10
    assert lake.faults.seen["lost"] > 3 or lake.endpoint == GCS


def _until_done(work: Callable[[], object]) -> None:
    """As often as a step is tried again; what cannot pass is not, and fails the test."""
    for _ in range(20):
        try:
            work()
        except TransientError:
            continue
        return
    raise AssertionError("twenty tries were of no avail")


def test_store_that_refuses_everything_is_tried_again(lake: Lake, topic: Callable[..., str]) -> None:
    if lake.endpoint == GCS:
        pytest.skip("Google's clients try for a quarter of an hour before they say so; `make s3` runs this")
    flow = Flow(topic(), ["append"], overrides={"control": {"enabled": False}})
    with session(lake.connections) as spark:
        engine = Engine(flow, lake.connections, spark)
        records = random_changes(1, 20, 10, 1)
        produce(bootstrap(lake.connections), flow.topic, records)
        engine.advance()
        more = random_changes(2, 20, 10, 1)
        produce(bootstrap(lake.connections), flow.topic, more)
        lake.faults.set(busy=1.0)
        with pytest.raises(TransientError):
            engine.advance()
        lake.faults.set()
        engine.advance()
        assert rows(lake.connections, flow.table("append")) == model.expected([*records, *more], "append")
