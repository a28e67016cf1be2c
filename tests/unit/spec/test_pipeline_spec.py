"""The pipeline file: what fits together, and one sentence for each thing that does not."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from jobs.spec.pipeline import PipelineSpec, load_pipeline_file
from jobs.spec.source import FromOffsets, FromTimestamp
from resources.errors import ConfigurationError

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


def refusal(**parts: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        PipelineSpec.model_validate(document(**parts))
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in caught.value.errors())


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


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"surprise": 1}, "surprise: Extra inputs are not permitted"),
        ({"source__surprise": 1}, "source.surprise: Extra inputs are not permitted"),
        ({"tables__0__surprise": 1}, "surprise: Extra inputs are not permitted"),
        ({"tables": []}, "tables: List should have at least 1 item"),
        ({"tables__0__mode": "merge"}, "mode: Input should be 'append', 'upsert', 'upsert_delete' or 'delete'"),
        ({"tables__0__kind": "oracle"}, "'oracle'"),
        ({"tables__0__table": "no_namespace"}, "String should match pattern"),
        ({"batch": {"max_records": 0}}, "batch.max_records: Input should be greater than 0"),
        ({"source__topics": MISSING}, "name either `topics` or a `pattern`"),
        ({"source__pattern": "t.*"}, "name either `topics` or a `pattern`"),
        ({"source__topics": ["t", "t"]}, "a topic is named twice"),
        ({"source__topics": [], "source__pattern": "t.*("}, "`pattern` is no regular expression"),
        ({"source__start": "sometime"}, "source.start"),
        ({"source__value__columns": {}}, "declare its `columns`"),
        ({"source__value__columns__id": "number"}, "column id: the type 'number' is wrong at position 1"),
        ({"source__key": {"format": "string", "columns": {"a": "string", "b": "string"}}}, "gives one column"),
        ({"source__value__columns__ID": "long"}, "id, ID differ in upper and lower case only"),
        ({"source__value__columns": {"op": "string", "__op": "string"}}, "__op is a name that the merge uses itself"),
        ({"changes__op__keep": True, "source__value__columns__OP": "int"}, "op, OP differ in upper and lower case"),
        (
            {"source__value__columns___topic": "string", "tables__0__metadata_columns": ["topic"]},
            "n.t has _topic from the value and as a metadata column",
        ),
        ({"changes__key__columns": []}, "changes.key.columns"),
        ({"changes__key__columns": ["id", "id"]}, "a key column is named twice"),
        ({"changes__key__columns": ["idd"]}, "idd is not a column of source.key (known: id)"),
        (
            {"changes__key": {"columns": ["idd"], "source": "value"}, "changes__order_by": "version"},
            "idd is not a column of source.value",
        ),
        ({"source__key": MISSING}, "the key columns come from the record's key, but `source.key` is missing"),
        ({"source__key__columns__id": "double"}, "id is double, which cannot identify a row"),
        ({"source__key__columns__id": "array<long>"}, "id is array<long>, which cannot identify a row"),
        ({"changes__key": MISSING}, "n.t needs `changes.key`"),
        ({"changes__op__field": "action"}, "changes.op.field: action is not a column of source.value"),
        ({"source__value__columns__op": "array<string>"}, "changes.op.field: op is not a single value"),
        ({"changes__op__delete": ["d", "u"]}, "u: mapped to more than one operation"),
        ({"changes__order_by": "lsn"}, "changes.order_by: lsn is not a column of source.value"),
        ({"changes__order_by": "op"}, "op is the op field, which the tables do not keep"),
        (
            {"changes__order_by": "version", "source__value__columns__version": "map<string,int>"},
            "version is not a single value, so it has no order",
        ),
        ({"changes__order_by": "version", "changes__op": MISSING}, "a tombstone has no version"),
        ({"source__topics": ["t", "u"]}, "with several topics nothing orders the changes to one key"),
        ({"source__topics": MISSING, "source__pattern": "t.*"}, "with several topics"),
        ({"changes__key__source": "value"}, "keys from the value may be in any partition"),
        ({"tables": [GOOD["tables"][0], GOOD["tables"][0]]}, "tables: n.t is named twice"),
        ({"since": "yesterday"}, "since: String should match pattern"),
        ({"trigger": {}}, "name `records`, `age_seconds` or both"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(parts: dict[str, Any], says: str) -> None:
    assert says in refusal(**parts)


def test_all_problems_are_told_at_once() -> None:
    said = refusal(changes__key__columns=["a", "b"], changes__op__field="action")
    assert "a, b is not a column" in said
    assert "action is not a column" in said


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


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name / "defs.yaml"
    path.parent.mkdir()
    path.write_text(text)
    return path


def test_pipeline_file_is_named_by_its_folder(tmp_path: Path) -> None:
    name, spec = load_pipeline_file(write(tmp_path, "orders_2", yaml.safe_dump({"type": "x", "attributes": GOOD})))
    assert (name, spec) == ("orders_2", PipelineSpec.model_validate(GOOD))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("Orders", "{}", "cannot be a pipeline's name"),
        ("orders", "a: [", "not a pipeline file"),
        ("orders", "a: 1", "not a pipeline file"),
        ("orders", "- 1", "not a pipeline file"),
        ("orders", "attributes: {surprise: 1}", "surprise: Extra inputs are not permitted"),
    ],
)
def test_file_that_is_no_pipeline_is_told_with_its_path(tmp_path: Path, name: str, text: str, says: str) -> None:
    path = write(tmp_path, name, text)
    with pytest.raises(ConfigurationError, match=says) as caught:
        load_pipeline_file(path)
    assert caught.value.where == str(path)


def test_missing_pipeline_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        load_pipeline_file(tmp_path / "orders" / "defs.yaml")


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


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"tables__0__route": {}}, "leave `route` out to take all records"),
        ({"tables__0__route": {"topics": []}}, "at least 1 item"),
        ({"tables__0__route": {"topics": ["t", "t"]}}, "a topic is named twice"),
        ({"tables__0__route": {"topics": ["u"]}}, "n.t names u, which is not a source topic"),
        ({"tables__0__route": {"field": "name"}}, "`field` and `matches` belong together"),
        ({"tables__0__route": {"matches": "x"}}, "`field` and `matches` belong together"),
        ({"tables__0__route": {"field": "nome", "matches": "x"}}, "nome is not a column of the key or the value"),
        ({"tables__0__route": {"field": "name.part", "matches": "x"}}, "name.part is not a column"),
        ({"tables__0__route": {"field": "name", "matches": "x("}}, "no regular expression"),
        ({"tables__0__route": {"field": "name", "matches": "^x$"}}, "the whole value must match"),
        ({"tables__0__route": {"field": "name", "matches": "(?i)x"}}, "use plain characters"),
        ({"tables__0__route": {"field": "name", "matches": "\\bx"}}, "use plain characters"),
        ({"tables__0__route": {"field": "name", "matches": "[a-z&&[b]]"}}, "use plain characters"),
        ({"tables__0__route": {"field": "name", "matches": "(x)\\1"}}, "use plain characters"),
        ({"source__value__columns__rate": "double", "route_by": "rate"}, "rate is double; route by a string"),
        ({"route_by": "nome"}, "route_by: nome is not a column"),
        ({"route_by": "name", "tables__0__route": {"topics": ["t"]}}, "only one of them can rule"),
        (
            {"source__topics": ["t", "u"], "changes__order_by": "version", "tables__0__route": {"topics": ["t"]}},
            "source.topics: u is taken by no table",
        ),
    ],
)
def test_routes_that_do_not_fit(parts: dict[str, Any], says: str) -> None:
    assert says in refusal(**parts)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (
            {"source__value__columns__at": "struct<x: int, X: int>"},
            "ignore_case: at.X differs from another field by upper and lower case only",
        ),
        ({"source__value__columns__ID": "long"}, "id, ID differ in upper and lower case only"),
        ({"source__key__registry": "registry"}, "ignore_case: works with plain JSON, not with json"),
        ({"source__per_topic": {"t": {"value": {"format": "connect_json"}}}}, "not with connect_json"),
    ],
)
def test_names_that_ignored_case_cannot_have(parts: dict[str, Any], says: str) -> None:
    assert says in refusal(ignore_case=True, **parts)
