"""Which columns a landed row has, and which of them make a destination row."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from jobs.changes.columns import landing_schema
from jobs.landing.batch_positions import BatchPositions
from jobs.landing.readers import record_reader
from jobs.offsets import OffsetRange, TopicPartition
from jobs.spec.columns import RowColumn, key_fields, row_columns
from jobs.spec.pipeline import PipelineSpec
from resources.kafka_records import INSTANT
from tests.kit import specs
from tests.kit.arrow import copied, raw_values
from tests.kit.batches import batch


def spec(changes: dict[str, Any] | None = None, mode: str = "upsert_delete") -> PipelineSpec:
    return specs.spec(
        specs.table(mode=mode),
        columns={"id": "long not null", "op": "string", "n": "struct<x: int not null>"},
        source={"key": {"columns": {"b": "string", "id": "int not null"}}},
        changes=changes if changes is not None else {"key": {"columns": ["id", "b"]}, "op": {"field": "op"}},
    )


def test_landed_row_has_nothing_required_anywhere() -> None:
    schema = landing_schema(spec())
    names = "key value op partitionTime i batchNumber landedAt kafka error revision"
    assert schema.names == names.split()
    assert schema.field("key").type == pa.struct([("id", pa.int32()), ("b", pa.string())])
    assert schema.field("value").type == pa.struct(
        [("id", pa.int64()), ("op", pa.string()), ("n", pa.struct([("x", pa.int32())]))]
    )
    assert all(f.nullable for f in schema)


def test_pipeline_without_a_key_has_no_key_column() -> None:
    bare = spec({}, mode="append")
    assert "key" not in landing_schema(bare).names
    assert key_fields(bare) == []
    assert [c.path for c in row_columns(bare, bare.tables[0])] == [("value", "id"), ("value", "op"), ("value", "n")]


def test_key_columns_come_from_the_key_and_the_op_field_is_dropped() -> None:
    assert row_columns(spec(), spec().tables[0]) == [
        RowColumn("b", pa.string(), False, ("key", "b"), is_key=True),
        RowColumn("id", pa.int32(), False, ("key", "id"), is_key=True),
        RowColumn("n", pa.struct([pa.field("x", pa.int32(), False)]), True, ("value", "n")),
    ]


def test_op_field_is_kept_on_request() -> None:
    kept = spec({"key": {"columns": ["id"]}, "op": {"field": "op", "keep": True}})
    assert [c.name for c in row_columns(kept, kept.tables[0])] == ["id", "op", "n"]


@pytest.mark.parametrize(("nulls", "nullable"), [("refuse", False), ("match", True)])
def test_key_columns_are_required_unless_nulls_match(nulls: str, nullable: bool) -> None:
    keyed = spec({"key": {"columns": ["id", "b"], "nulls": nulls}})
    found = row_columns(keyed, keyed.tables[0])
    assert {c.nullable for c in found if c.is_key} == {nullable}


def test_metadata_columns() -> None:
    wanted = ["topic", "partition", "offset", "timestamp", "batch", "op"]
    added = row_columns(spec(), spec().tables[0].model_copy(update={"metadata_columns": wanted}))[-6:]
    assert [(c.name, c.type, c.path) for c in added] == [
        ("_topic", pa.string(), ("kafka", "topic")),
        ("_partition", pa.int32(), ("kafka", "partition")),
        ("_offset", pa.int64(), ("kafka", "offset")),
        ("_timestamp", INSTANT, ("kafka", "timestamp")),
        ("_batch", pa.int64(), ("batchNumber",)),
        ("_op", pa.string(), ("op",)),
    ]


def test_positions_of_a_batch_are_laid_out_by_topic_and_partition() -> None:
    a0, t0, t1 = TopicPartition("a", 0), TopicPartition("t", 0), TopicPartition("t", 1)
    ranges = {t1: OffsetRange(5, 9), a0: OffsetRange(100, 103), t0: OffsetRange(0, 0)}
    made = record_reader(spec(), batch(1, ranges=ranges), landing_schema(spec()))
    assert made.positions == BatchPositions({a0: 0 - 100, t0: 3 - 0, t1: 3 - 5})
    assert made.key_columns == ("id", "b")
    assert made.refuse_null_keys


def test_forced_optional_columns_but_not_the_key() -> None:
    declared = {"name": "string not null", "at": "struct<x: int not null>"}
    document = specs.document(specs.table(mode="upsert"), columns=declared, key={"id": "long not null"})
    usual = PipelineSpec.model_validate(document)
    as_declared = row_columns(usual, usual.tables[0])
    assert [c.nullable for c in as_declared] == [False, False, True]
    forced = row_columns(PipelineSpec.model_validate({**document, "force_optional": True}), usual.tables[0])
    assert [c.nullable for c in forced] == [False, True, True]
    assert forced[2].type.field("x").nullable


def test_values_are_optional_where_deletes_are_rows() -> None:
    log = specs.spec(specs.table(deletes="rows"), columns={"id": "long not null", "n": "int not null"}, key="id")
    assert [(c.name, c.nullable) for c in row_columns(log, log.tables[0])] == [("id", False), ("n", True)]


def test_keys_and_values_are_converted_and_timed_as_declared() -> None:
    columns = {"at": "timestamp not null", "tags": "array<struct<n: long, at: timestamp>>"}
    value = {"convert": "best_fit", "time_unit": "s"}
    made = specs.spec(specs.table(mode="upsert"), columns=columns, key={"at": columns["at"]}, value=value)
    reader = record_reader(made, batch(1), landing_schema(made))
    at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert reader.key_decoder
    assert copied(reader.key_decoder).usual.decode(raw_values({"at": 1_700_000_000})).values.to_pylist() == [{"at": at}]
    decoded = copied(reader.value_decoder).usual.decode(
        raw_values({"at": "2023-11-14", "tags": [{"n": "7", "at": 1_700_000_000}]})
    )
    assert decoded.errors == {}
    assert decoded.values.to_pylist() == [{"at": at.replace(hour=0, minute=0, second=0), "tags": [{"n": 7, "at": at}]}]


def test_rows_in_an_envelope_are_converted_as_declared() -> None:
    value = {"envelope": {"kind": "debezium", "timestamps": "us"}, "convert": "best_fit"}
    columns = {"id": "long not null", "at": "timestamp"}
    made = specs.spec(specs.table(mode="upsert"), columns=columns, key={"id": "long not null"}, value=value)
    decoder = record_reader(made, batch(1), landing_schema(made)).value_decoder.usual
    decoded = copied(decoder).decode(raw_values({"op": "c", "after": {"id": "7", "at": 1_700_000_000_000_000}}))
    assert decoded.errors == {}
    (row,) = decoded.values.to_pylist()
    assert (row["id"], row["at"]) == (7, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC))


def test_keys_in_json_are_written_like_the_rows_of_their_records() -> None:
    columns = {"at": "timestamp not null", "n": "decimal(10,2)"}
    value = {"envelope": {"kind": "debezium", "timestamps": "us", "decimals": "base64"}}
    made = specs.spec(specs.table(mode="upsert_delete"), columns=columns, key=columns, value=value)
    decoder = record_reader(made, batch(1), landing_schema(made)).key_decoder
    assert decoder
    decoded = copied(decoder).usual.decode(raw_values({"at": 1_700_000_000_123_456, "n": "AfE="}, {"n": None}))
    key = {"at": datetime(2023, 11, 14, 22, 13, 20, 123456, UTC), "n": Decimal("4.97")}
    assert decoded.values.to_pylist() == [key, None]
    assert set(decoded.errors) == {1}
