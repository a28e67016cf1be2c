"""Batches into real ClickHouse tables equal an independent model, whatever happened before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs import protocol
from resources.connections import Connections
from tests.kit import model
from tests.kit.clickhouse import clickhouse_flow, rows
from tests.kit.records import bootstrap, produce, random_changes

MODES = ["append", "upsert", "upsert_delete"]
pytestmark = pytest.mark.usefixtures("clickhouse")


def test_tables_equal_the_model_over_many_batches(clickhouse: Path, connections: Connections, topic: Callable[..., str]) -> None:
    flow = clickhouse_flow(topic(partitions=3), MODES, max_records=130)
    records = []
    for seed in range(3):
        more = random_changes(seed, 200, 40, 3)
        produce(bootstrap(connections), flow.topic, more)
        records += more
        pipeline = flow.pipeline(connections)
        for _ in protocol.land(pipeline, 0):
            if seed == 0:
                for destination in pipeline.destinations():
                    protocol.merge(pipeline, destination)
        # Later rounds: several landed batches in one merge.
        for destination in pipeline.destinations():
            protocol.merge(pipeline, destination)
            assert protocol.merge(pipeline, destination) is None
    for mode in MODES:
        assert rows(connections, flow.table(mode)) == model.expected(records, mode), mode
    committed = [d.committed() for d in pipeline.destinations()]
    assert all(state == pipeline.intermediate.committed() for state in committed)
