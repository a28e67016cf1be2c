"""The network between a run and ClickHouse is cut while rows are sent, again and again: no row lost or doubled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobs import protocol
from resources.connections import ClickHouseConnection, Connections
from resources.errors import Unavailable
from tests.kit import model
from tests.kit.clickhouse import clickhouse_flow, rows
from tests.kit.network import wire_to, with_connection
from tests.kit.records import bootstrap, produce, random_changes

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("clickhouse")]


def test_network_is_cut_while_rows_are_sent(connections: Connections, topic: Callable[..., str]) -> None:
    flow = clickhouse_flow(topic(partitions=2), ["append"], max_records=5000, chunk_rows=400)
    records = random_changes(3, 4000, 200, 2)
    produce(bootstrap(connections), flow.topic, records)
    known = connections.get("clickhouse", ClickHouseConnection)
    cuts = 0
    with wire_to(known.endpoints[0]) as (wire, address):
        pipeline = flow.pipeline(
            with_connection(connections, "clickhouse", known.model_copy(update={"endpoints": [address]}))
        )
        (table,) = pipeline.destinations()
        list(protocol.land(pipeline, 0))
        table.prepare()
        # A little later each time, until a whole merge fits between two cuts.
        while True:
            wire.restore()
            wire.cut_after = wire.carried + 20_000 * 2**cuts
            try:
                protocol.merge(pipeline, table)
                break
            except Unavailable:
                cuts += 1
        wire.restore()
        assert cuts >= 3
        assert protocol.merge(pipeline, table) is None
    assert rows(connections, flow.table("append")) == model.expected(records, "append")
