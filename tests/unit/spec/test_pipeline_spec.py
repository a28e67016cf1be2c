"""The pipeline file: what fits together, and what follows from it. What does not fit: test_mistakes.py."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from jobs.spec.pipeline import PipelineSpec
from jobs.spec.source import FromOffsets, FromTimestamp

GOOD: dict[str, Any] = {
    "source": {
        "topics": ["t"],
        "key": {"format": "json", "columns": {"id": "long"}},
        "value": {"format": "json", "columns": {"id": "long", "name": "string", "op": "string", "version": "long"}},
    },
    "changes": {"key": {"columns": ["id"]}, "op": {"field": "op"}},
    "tables": [{"kind": "iceberg", "table": "n.t", "mode": "upsert_delete"}],
}
MISSING = object()


def document(**parts: Any) -> dict[str, Any]:
    """The good one with parts replaced, by dotted path (`__` for the dot); MISSING takes one away."""
    made = copy.deepcopy(GOOD)
    for path, value in parts.items():
        *outer, last = path.split("__")
        at: Any = made
        for name in outer:
            at = at[int(name) if name.isdigit() else name]
        if value is MISSING:
            del at[last]
        else:
            at[last] = value
    return made


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"source__topics": MISSING, "source__pattern": "t.*", "changes__order_by": "arrival"},
        {"source__topics": ["t", "u"], "changes__order_by": "version"},
        {"source__topics": ["t", "u"], "tables__0__mode": "append"},
        {"changes__key__source": "value", "changes__order_by": "version"},
        {"changes": {}, "tables__0__mode": "append", "source__key": MISSING},
        {"source__start": "latest"},
        {"source__value__columns__Name": "string", "source__value__columns__name": MISSING},
        {"source__value__columns__op": MISSING, "source__value__columns__OP": "string", "changes__op__field": "OP"},
    ],
)
def test_combinations_that_fit(parts: dict[str, Any]) -> None:
    PipelineSpec.model_validate(document(**parts))


def test_start_in_all_its_forms() -> None:
    def start(given: object) -> object:
        return PipelineSpec.model_validate(document(source__start=given)).source.start

    assert start("earliest") == "earliest"
    assert isinstance(start({"timestamp": "2026-01-01T00:00:00Z"}), FromTimestamp)
    found = start({"offsets": {"t": {"0": 5, 1: 7}}})
    assert isinstance(found, FromOffsets)
    assert found.offsets == {"t": {0: 5, 1: 7}}


def test_hash_follows_the_meaning_and_nothing_else() -> None:
    same = PipelineSpec.model_validate(document()).meaning_hash
    for parts in ({"batch": {"max_records": 7}}, {"source__value__columns__more": "date"}, {"description": "x"}):
        assert PipelineSpec.model_validate(document(**parts)).meaning_hash == same, parts
    for other in (
        {"changes__key": {"columns": ["id"], "nulls": "match"}},
        {"changes__op__delete": ["d", "x"]},
        {"changes__order_by": "version"},
    ):
        assert PipelineSpec.model_validate(document(**other)).meaning_hash != same, other


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, True),
        ({"changes__order_by": "arrival"}, False),
        ({"changes__order_by": "version"}, False),
        ({"tables__0__mode": "append"}, False),
    ],
)
def test_key_must_stay_where_order_rests_on_its_partition(parts: dict[str, Any], expected: bool) -> None:
    assert PipelineSpec.model_validate(document(**parts)).key_must_stay is expected


# ---- routing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        {"tables__0__route": {"topics": ["t"]}},
        {"tables__0__route": {"field": "name", "matches": "AA|U[A-Z]\\.\\d+(?:x|y){2,3}.*?"}},
        {"tables__0__route": {"topics": ["t"], "field": "id", "matches": "1.*"}},
        {"route_by": "name"},
        {
            "source__topics": MISSING,
            "source__pattern": "t_.*",
            "changes__order_by": "version",
            "tables__0__route": {"topics": ["t_1"]},
        },
        {"source__value__columns__at": "struct<place: string>", "route_by": "at.place"},
    ],
)
def test_routes_that_fit(parts: dict[str, Any]) -> None:
    PipelineSpec.model_validate(document(**parts))


def test_topics_that_the_pipeline_writes_to() -> None:
    spec = PipelineSpec.model_validate(document(dead_letters={"topic": "t_dead"}))
    assert spec.own_topics == {"t_dead", "batchmerge_control"}
    assert PipelineSpec.model_validate(document(control={"enabled": False})).own_topics == set()
