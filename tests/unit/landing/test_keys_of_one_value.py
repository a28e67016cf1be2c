"""Keys without fields, as a pipeline file declares them, also of records without a value."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from jobs.changes.columns import landing_schema
from jobs.landing.readers import record_reader
from jobs.offsets import OffsetRange, TopicPartition
from jobs.spec.pipeline import PipelineSpec
from tests.kit.arrow import copied, kafka_records
from tests.kit.batches import batch

LONG = struct.pack(">q", 42)


@pytest.mark.parametrize(
    ("key", "raw", "bad"),
    [
        ({"format": "bytes"}, LONG, b"424"),
        ({"format": "string"}, b"42", b"x"),
        ({"format": "json"}, b"42", b"[42]"),
        ({"format": "json", "rename": {"number": "id"}}, b"42", b'"x"'),
        ({"format": "json", "column": "whole"}, b"42", b"{}"),
    ],
)
def test_row_of_the_key_is_written_and_deleted(key: dict[str, Any], raw: bytes, bad: bytes) -> None:
    column = key.get("column", "id")
    spec = PipelineSpec.model_validate(
        {
            "source": {
                "topics": ["t"],
                "key": {"columns": {"id": "long not null"}, **key},
                "value": {"format": "json", "columns": {"name": "string"}},
            },
            "changes": {"key": {"columns": [column]}},
            "tables": [{"kind": "bigquery", "table": "a.b", "mode": "upsert_delete"}],
        }
    )
    ranges = {TopicPartition("t", 0): OffsetRange(0, 4)}
    reader = copied(record_reader(spec, batch(1, ranges=ranges), landing_schema(spec)))
    landed = reader.read(kafka_records((raw, {"name": "a"}), (raw, None), (bad, {"name": "b"}), (None, {"name": "c"})))
    whole = {"id": {"id": 42}, "whole": {"whole": {"id": 42}}}[column]
    assert landed.column("key").to_pylist()[:2] == [whole, whole]
    assert landed.column("op").to_pylist() == ["upsert", "delete", None, None]
    assert [error and error["stage"] for error in landed.column("error").to_pylist()] == [None, None, "key", "key"]
