"""The pipeline file: what fits together, and what follows from it. What does not fit: test_mistakes.py."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.spec.pipeline import PipelineSpec
from jobs.spec.source import FromOffsets, FromTimestamp
from jobs.spec.tables import table_named
from resources.errors import ConfigurationError
from tests.kit import specs
from tests.kit.specs import TAKEN_OUT, changed


def spec(parts: dict[str, Any]) -> PipelineSpec:
    return PipelineSpec.model_validate(changed(parts))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"source.topics": TAKEN_OUT, "source.pattern": "t.*", "changes.order_by": "arrival"},
        {"source.topics": ["t", "u"], "changes.order_by": "version"},
        {"source.topics": ["t", "u"], "tables.0.mode": "append"},
        {"changes.key.source": "value", "changes.order_by": "version"},
        {"changes": {}, "tables.0.mode": "append", "source.key": TAKEN_OUT},
        {"source.start": "latest"},
        {"source.value.columns.Name": "string", "source.value.columns.name": TAKEN_OUT},
        {"source.value.columns.op": TAKEN_OUT, "source.value.columns.OP": "string", "changes.op.field": "OP"},
    ],
)
def test_combinations_that_fit(parts: dict[str, Any]) -> None:
    spec(parts)


def test_start_in_all_its_forms() -> None:
    def start(given: object) -> object:
        return spec({"source.start": given}).source.start

    assert start("earliest") == "earliest"
    assert isinstance(start({"timestamp": "2026-01-01T00:00:00Z"}), FromTimestamp)
    found = start({"offsets": {"t": {"0": 5, 1: 7}}})
    assert isinstance(found, FromOffsets)
    assert found.offsets == {"t": {0: 5, 1: 7}}


def test_hash_follows_the_meaning_and_nothing_else() -> None:
    same, order = spec({}).meaning_hash, spec({}).order_hash
    unmeant = ({"batch": {"max_records": 7}}, {"source.value.columns.more": "date"}, {"changes.tombstones": "skip"})
    for parts in (*unmeant, {"description": "x"}):
        assert spec(parts).meaning_hash == same, parts
    for other in (
        {"changes.key": {"columns": ["id"], "nulls": "match"}},
        {"changes.op.delete": ["d", "x"]},
        {"changes.order_by": "version"},
    ):
        assert spec(other).meaning_hash != same, other
        assert (spec(other).order_hash == order) is ("changes.op.delete" in other), other


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, True),
        ({"changes.order_by": "arrival"}, False),
        ({"changes.order_by": "version"}, False),
        ({"tables.0.mode": "append"}, False),
    ],
)
def test_key_must_stay_where_order_rests_on_its_partition(parts: dict[str, Any], expected: bool) -> None:
    assert spec(parts).key_must_stay is expected


# ---- routing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        {"tables.0.route": {"topics": ["t"]}},
        {"tables.0.route": {"field": "name", "matches": "AA|U[A-Z]\\.\\d+(?:x|y){2,3}.*?"}},
        {"tables.0.route": {"topics": ["t"], "field": "id", "matches": "1.*"}},
        {"route_by": "name"},
        {
            "source.topics": TAKEN_OUT,
            "source.pattern": "t_.*",
            "changes.order_by": "version",
            "tables.0.route": {"topics": ["t_1"]},
        },
        {"source.value.columns.at": "struct<place: string>", "route_by": "at.place"},
    ],
)
def test_routes_that_fit(parts: dict[str, Any]) -> None:
    spec(parts)


def test_a_table_has_the_names_that_a_person_sees() -> None:
    first, second = specs.spec(specs.table(name="n.t", connection="lake2"), specs.table(name="n.u")).tables
    for text in ("n.t", "iceberg n.t", "iceberg n.t on lake2", "iceberg/lake2/n/t"):
        assert first.is_called(text)
        assert table_named("p", [first, second], text) == first
    assert second.is_called("iceberg/n/u")
    assert not second.is_called("iceberg/n/t")
    with pytest.raises(ConfigurationError, match="no table 'nothing'") as caught:
        table_named("p", specs.spec(specs.table(), specs.table("clickhouse")).tables, "nothing")
    assert caught.value.remedy == "name one of 'iceberg n.t', 'clickhouse n.t'"


def test_topics_that_the_pipeline_writes_to() -> None:
    assert spec({"dead_letters": {"topic": "t_dead"}}).own_topics == {"t_dead", "batchmerge_control"}
    assert spec({"control": {"enabled": False}}).own_topics == set()


@pytest.mark.parametrize(
    "difference",
    [
        {"changes.op": TAKEN_OUT, "changes.tombstones": "skip"},
        {"changes.op": TAKEN_OUT, "source.value.envelope": {"kind": "debezium_flat", "tombstones": "skip"}},
        {"changes.op": TAKEN_OUT, "source.value.envelope": "debezium"},
    ],
)
def test_tombstones_that_are_skipped_need_no_order(difference: dict[str, Any]) -> None:
    assert specs.mistakes(changed({"changes.order_by": "version", **difference})) == []
