"""Which records a table takes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from jobs.changes.routing import RouteFilter, route_filter, route_filters, table_names
from jobs.spec.pipeline import PipelineSpec
from tests.kit import specs

TOPICS = pa.array(["a", "a", "b", "b", "b"])
KEY = pa.array([{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4}, {"id": 5}], pa.struct([("id", pa.int64())]))
VALUE = pa.array(
    [
        {"name": "AA", "at": {"place": "air.Flights"}, "good": True},
        {"name": "AA\n", "at": None, "good": False},
        None,
        {"name": None, "at": {"place": None}, "good": None},
        {"name": "xAA", "at": {"place": "FLIGHTS"}, "good": True},
    ],
    pa.struct([("name", pa.string()), ("at", pa.struct([("place", pa.string())])), ("good", pa.bool_())]),
)
OP = pa.array(["insert", "upsert", "delete", "update", None])


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        (RouteFilter(), [0, 1, 2, 3, 4]),
        (RouteFilter(topics=("b",)), [2, 3, 4]),
        (RouteFilter(topics=("a", "c")), [0, 1]),
        pytest.param(
            RouteFilter(path=("value", "name"), pattern="A+"), [0, 2], id="whole value; a tombstone goes anywhere"
        ),
        pytest.param(RouteFilter(path=("value", "name"), pattern="AA.*"), [0, 1, 2], id=". is any character"),
        pytest.param(RouteFilter(path=("value", "name"), pattern="aa"), [2], id="case counts"),
        pytest.param(RouteFilter(path=("value", "name"), pattern="x|"), [2], id="null is not empty"),
        pytest.param(RouteFilter(path=("value", "name"), pattern="x|xAA"), [2, 4], id="alternatives are whole"),
        (RouteFilter(path=("value", "good"), pattern="true"), [0, 2, 4]),
        pytest.param(RouteFilter(path=("key", "id"), pattern="[34]"), [2, 3], id="a delete has its key"),
        pytest.param(
            RouteFilter(path=("value", "at", "place"), names=("air.flights", "flights")), [0, 2, 4], id="names"
        ),
        (RouteFilter(topics=("a",), path=("value", "name"), pattern="x?AA"), [0]),
    ],
)
def test_mask(taken: RouteFilter, expected: list[int]) -> None:
    found = taken.mask(TOPICS, KEY, VALUE, OP).to_pylist()
    assert [n for n, one in enumerate(found) if one] == expected
    assert None not in found


def spec(tables: list[dict[str, Any]], **parts: Any) -> PipelineSpec:
    return specs.spec(
        *(specs.table(name=f"n.T{n}") | options for n, options in enumerate(tables)),
        columns={"name": "string", "kind": "string"},
        source={"topics": ["a", "b"], "key": {"columns": {"id": "long", "name": "string"}}},
        changes={"key": {"columns": ["id"]}},
        **parts,
    )


def test_routes_of_a_pipeline_file() -> None:
    made = spec([{"route": {"topics": ["a"]}}, {"route": {"field": "name", "matches": "x"}}])
    assert route_filters(made) == (RouteFilter(topics=("a",)), RouteFilter(path=("value", "name"), pattern="x"))
    assert route_filter(spec([{}]), spec([{}]).tables[0]) is None


def test_a_table_without_a_route_leaves_nothing_unroutable() -> None:
    assert route_filters(spec([{"route": {"topics": ["a"]}}, {}])) is None


def test_route_by_the_key_where_it_has_the_field() -> None:
    made = spec([{}, {}], route_by="id")
    assert route_filters(made) == (RouteFilter(path=("key", "id"), names=("n.t0", "t0", "n.t1", "t1")),)
    assert table_names(made.tables[1]) == ("n.t1", "t1")


def test_parameters_hold_the_values() -> None:
    taken = RouteFilter(topics=("a", "b"), path=("value", "name"), pattern="x")
    assert taken.parameters == {"route_topic_0": "a", "route_topic_1": "b", "route_matches": r"(?s)\A(?:x)\z"}
