"""The parts of a pipeline file that say how records are encoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from jobs.spec.formats import Format
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.source import Source
from tests.kit.avro import record, text

COLUMNS = {"id": "long"}


def test_columns_come_from_a_schema_file(tmp_path: Path) -> None:
    file = tmp_path / "row.avsc"
    file.write_text(text(record(("id", "long"), ("name", ["null", "string"]))))
    declared = Format.model_validate({"format": "avro", "schema_file": str(file)})
    assert declared.columns == {"id": "long not null", "name": "string"}
    some = Format.model_validate({"format": "avro", "schema_file": str(file), "columns": COLUMNS})
    assert some.columns == COLUMNS


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"format": "avro", "columns": COLUMNS}, "avro needs a `registry` or a `schema_file`"),
        ({"format": "string", "registry": "r", "columns": COLUMNS}, "`registry` goes with avro, json, protobuf"),
        ({"format": "json", "schema_file": "x", "columns": COLUMNS}, "`schema_file` goes with avro and protobuf"),
        ({"format": "protobuf", "schema_file": "x", "columns": COLUMNS}, "`message` goes with protobuf"),
        ({"format": "protobuf", "registry": "r", "schema_file": "x", "columns": COLUMNS}, "either"),
        ({"format": "avro", "schema_file": "nowhere.avsc"}, "cannot be read"),
        ({"format": "json"}, "declare its `columns`"),
        ({"envelope": "debezium", "columns": {"_op": "string"}}, "columns of the row"),
        ({"envelope": {"kind": "dms", "metadata": {"_lsn": "x"}}, "columns": COLUMNS}, "give the type of _lsn"),
        ({"envelope": "maxwell", "columns": COLUMNS}, "debezium_flat"),
    ],
)
def test_what_cannot_be(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Format.model_validate(given)


def test_topics_of_their_own_encoding() -> None:
    value = {"columns": COLUMNS}
    per_topic = {"a": {"value": {"format": "avro", "registry": "one"}}}
    source = Source.model_validate({"topics": ["a", "b"], "value": value, "per_topic": per_topic})
    assert source.registries == ["one"]
    with pytest.raises(ValidationError, match="c is not among the topics"):
        Source.model_validate({"topics": ["a"], "value": value, "per_topic": {"c": {}}})


def test_change_data_has_its_operations() -> None:
    document: dict[str, Any] = {
        "source": {"topics": ["t"], "key": {"columns": COLUMNS}, "value": {"envelope": "debezium", "columns": COLUMNS}},
        "changes": {"key": {"columns": ["id"]}},
        "tables": [{"kind": "iceberg", "table": "n.t", "mode": "upsert_delete"}],
    }
    spec = PipelineSpec.model_validate(document)
    assert spec.changes.op is not None
    assert (spec.changes.op.field, spec.changes.op.keep) == ("_op", False)
    assert spec.source.value.columns == {**COLUMNS, "_op": "string"}
    envelope = {"kind": "debezium", "metadata": {"action": "op"}}
    document["source"]["value"] = {"envelope": envelope, "columns": {**COLUMNS, "action": "string"}}
    spec = PipelineSpec.model_validate(document)
    assert spec.changes.op is not None
    assert (spec.changes.op.field, spec.changes.op.keep) == ("action", True)
