"""The parts of a pipeline file that say how records are encoded."""

from __future__ import annotations

from pathlib import Path

from jobs.spec.formats import Format
from jobs.spec.source import Source
from tests.kit import specs
from tests.kit.avro import record, text

COLUMNS = {"id": "long"}


def test_columns_come_from_a_schema_file(tmp_path: Path) -> None:
    file = tmp_path / "row.avsc"
    file.write_text(text(record(("id", "long"), ("name", ["null", "string"]))))
    declared = Format.model_validate({"format": "avro", "schema_file": str(file)})
    assert declared.columns == {"id": "long not null", "name": "string"}
    some = Format.model_validate({"format": "avro", "schema_file": str(file), "columns": COLUMNS})
    assert some.columns == COLUMNS


def test_topics_of_their_own_encoding() -> None:
    value = {"columns": COLUMNS}
    per_topic = {"a": {"value": {"format": "avro", "registry": "one"}}}
    source = Source.model_validate({"topics": ["a", "b"], "value": value, "per_topic": per_topic})
    assert source.registries == ["one"]


def test_change_data_has_its_operations() -> None:
    table = specs.table(mode="upsert_delete")
    spec = specs.spec(table, key=COLUMNS, value={"envelope": "debezium"})
    assert spec.changes.op is not None
    assert (spec.changes.op.field, spec.changes.op.keep) == ("_op", False)
    assert spec.source.value.columns == {**COLUMNS, "_op": "string"}
    envelope = {"kind": "debezium", "metadata": {"action": "op"}}
    spec = specs.spec(table, key=COLUMNS, columns={**COLUMNS, "action": "string"}, value={"envelope": envelope})
    assert spec.changes.op is not None
    assert (spec.changes.op.field, spec.changes.op.keep) == ("action", True)
