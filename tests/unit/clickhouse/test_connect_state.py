"""Where a ClickHouse sink with `exactlyOnce` stopped: its rows bear the names that it gives partitions."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.connect_import.configuration import Configuration
from jobs.connect_import.sink import sink_of
from jobs.destinations.clickhouse.connect_offsets import after_keeper_state
from jobs.destinations.clickhouse.connect_sink import ClickHouseSink
from jobs.offsets import Offsets
from resources.errors import SourceError
from resources.topic_partition import TopicPartition

SINK = {"connector.class": "com.clickhouse.kafka.connect.ClickHouseSinkConnector", "exactlyOnce": "true"}
ROUTER = {
    "transforms": "r",
    "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.r.regex": r"(?:pg|crm)\.(.*)",
    "transforms.r.replacement": "a_$1",
}
BY_HEADER = {
    "transforms.r.predicate": "p",
    "predicates": "p",
    "predicates.p.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
}
SPLIT = {"database": "shop", "enableDbTopicSplit": "true"}
ORDERS = TopicPartition("pg.orders", 3)


def after(rows: list[tuple[str, int, str]], *partitions: TopicPartition, **options: str) -> Offsets:
    sink = ClickHouseSink(Configuration("s", {**SINK, **options}))
    found = [{"key": key, "last": last, "state": f"{state}_PROCESSING"} for key, last, state in rows]
    return after_keeper_state(dict.fromkeys(partitions, 100), found, "here", sink.state_key)


@pytest.mark.parametrize(
    ("topic", "options", "key"),
    [
        ("pg.orders", {}, "pg.orders-3"),
        ("pg.orders", ROUTER, "a_orders-3"),
        ("orders", SPLIT, "shop.orders-3"),
        ("pg.orders", SPLIT, "pg.orders-3"),
        ("pg.public.orders", SPLIT, "shop.pg.public.orders-3"),
        ("pg.orders", {**SPLIT, "dbTopicSplitChar": "__"}, "shop__pg.orders-3"),
        ("pg.orders", {**SPLIT, **ROUTER}, "shop.a_orders-3"),
    ],
)
def test_the_name_of_a_partition(topic: str, options: dict[str, str], key: str) -> None:
    assert ClickHouseSink(Configuration("s", {**SINK, **options})).state_key(TopicPartition(topic, 3)) == key


def test_the_row_of_another_connector_does_not_count() -> None:
    rows = [("a_orders-3", 199, "AFTER"), ("pg.orders-3", 499, "AFTER")]
    assert after(rows, ORDERS, **ROUTER) == {ORDERS: 200}
    with pytest.raises(SourceError, match=r"a batch of pg\.orders-3 that ends at offset 199"):
        after([("a_orders-3", 199, "BEFORE")], ORDERS, **ROUTER)


def test_a_row_of_several_partitions_says_nothing() -> None:
    both = [ORDERS, TopicPartition("crm.orders", 3)]
    with pytest.raises(SourceError, match=r"pg\.orders-3, crm\.orders-3 have one row, a_orders-3\. Fix: import with"):
        after([("a_orders-3", 199, "AFTER")], *both, **ROUTER)
    assert after([], *both, **ROUTER) == dict.fromkeys(both, 100)


@pytest.mark.parametrize(
    "options",
    [
        {**ROUTER, **BY_HEADER},
        {"transforms": "r", "transforms.r.type": "com.clickhouse.kafka.connect.transforms.ExtractTopic$Key"},
    ],
)
def test_names_that_differ_by_record_are_refused(options: dict[str, str]) -> None:
    nothing: Any = None
    configuration = Configuration("s", {**SINK, **options})
    with pytest.raises(SourceError, match=r"the names that r \(\w+\) gives topics record by record\. Fix: import with"):
        sink_of(configuration).stopped_at(nothing, nothing, {ORDERS: 100})
    once = Configuration("s", {**configuration.options, "exactlyOnce": "false"})
    assert sink_of(once).stopped_at(nothing, nothing, {ORDERS: 100}) == {ORDERS: 100}
