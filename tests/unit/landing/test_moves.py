"""Which records are the two of a changed primary key, and where their source says that the change stands."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from jobs.batch import Batch, Counts, LandedBatch, Moves
from jobs.changes.columns import SOME_HEADERS
from jobs.decode.base import DecodeError
from jobs.decode.decoders import decoder_for
from jobs.decode.envelope import MOVED
from jobs.decode.source_position import SourcePosition
from jobs.landed_properties import landed_from_properties, landed_to_properties
from jobs.landing.moves import MoveReader, moves_among
from jobs.landing.row_columns import error_column
from jobs.landing.task_report import TaskReport
from jobs.landing.topic_decoder import TopicDecoder
from jobs.watermark import Watermark
from resources.kafka_records import HEADERS
from tests.kit.arrow import copied, kafka_records, raw_values
from tests.kit.batches import batch

AVRO = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "op", "type": "string"},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [{"name": "db", "type": "string"}, {"name": "lsn", "type": ["null", "long"]}],
            },
        },
    ],
}


def avro(lsn: int | None) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, AVRO, {"op": "d", "source": {"db": "shop", "lsn": lsn}})
    return out.getvalue()


def at(**position: object) -> dict[str, object]:
    return {"op": "d", "before": {"id": 1}, "source": {"connector": "x", "ts_ms": 1, **position}}


def with_schema(lsn: int | None) -> dict[str, object]:
    fields = [{"type": "string", "field": "db"}, {"type": "int64", "optional": True, "field": "lsn"}]
    source = {"type": "struct", "field": "source", "fields": fields}
    schema = {"type": "struct", "fields": [{"type": "string", "field": "op"}, source]}
    return {"schema": schema, "payload": {"op": "d", "source": {"db": "shop", "lsn": lsn}}}


@pytest.mark.parametrize(
    ("format", "schema", "kind", "records"),
    [
        pytest.param("json", "", "debezium", [at(lsn=7), at(lsn=None), at()], id="json"),
        pytest.param(
            "connect_json",
            "",
            "debezium",
            [with_schema(7), with_schema(None), {"schema": None, "payload": None}],
            id="a payload beside its schema",
        ),
        pytest.param("avro", json.dumps(AVRO), "debezium", [avro(7), avro(None), None], id="avro"),
        pytest.param(
            "json",
            "",
            "debezium_flat",
            [{"id": 1, "__source_lsn": 7}, {"id": 1, "__op": "d"}, {"id": 1, "__source_ts_ms": 3}],
            id="a row without an envelope",
        ),
    ],
)
def test_position_in_every_format(format: str, schema: str, kind: str, records: list[Any]) -> None:
    decoder = copied(SourcePosition(kind, lambda of, watch: decoder_for(format, of, schema.encode(), watch=watch)))
    position, *without = decoder.decode(raw_values(*records)).values.to_pylist()
    assert position
    assert "7" in position
    assert without == [None, None]


def test_schema_of_another_form_has_no_position() -> None:
    schema = {**AVRO, "fields": [{"name": "source", "type": "string"}]}
    raw = BytesIO()
    fastavro.schemaless_writer(raw, schema, {"source": "here"})
    decoder = SourcePosition("debezium", lambda of, _: decoder_for("avro", of, json.dumps(schema).encode()))
    assert decoder.decode(raw_values(raw.getvalue())).values.to_pylist() == [None]


def test_position_of_oracle_has_all_its_parts() -> None:
    decoder = SourcePosition("debezium", lambda of, watch: decoder_for("json", of, watch=watch))
    one, same, other, broken = decoder.decode(
        raw_values(
            at(scn="5", rs_id="a", ssn=1), at(scn="5", rs_id="a", ssn=1), at(scn="5", rs_id="a", ssn=2), b"no json"
        )
    ).values.to_pylist()
    assert one == same != other
    assert broken is None


def test_only_records_that_name_another_key_are_read() -> None:
    headers = [
        None,
        [{"key": "__debezium.newkey", "value": b'{"id":2}'}],
        [{"key": "trace", "value": b"t"}],
        [],
        [{"key": "trace", "value": b"t"}, {"key": "__debezium.oldkey", "value": b'{"id":1}'}],
    ]
    records = kafka_records(*((b'{"id":1}', at(lsn=n)) for n in range(5)))
    decoder = SourcePosition("debezium", lambda of, watch: decoder_for("json", of, watch=watch))
    for name in ("headers", "some_headers"):
        with_headers = records.append_column(name, pa.array(headers, HEADERS))
        found = MoveReader(TopicDecoder(decoder)).column(with_headers)
        assert found.to_pylist() == [None, '{"lsn": 1}', None, None, '{"lsn": 4}']
        assert MoveReader().column(with_headers).to_pylist() == [None] * 5


def test_dead_letter_says_where_it_has_only_some_headers() -> None:
    """Or it would not be known whether the record has others, which a table may ask for later."""
    old_key = {"key": "__debezium.oldkey", "value": b'{"id":1}'}
    records = kafka_records((b'{"id":1}', None), (b'{"id":1}', None))
    errors = dict.fromkeys(range(2), DecodeError(MOVED, ""))
    for name, kept in [
        ("headers", [[old_key], []]),
        ("some_headers", [[old_key, {"key": SOME_HEADERS, "value": None}], None]),
    ]:
        with_headers = records.append_column(name, pa.array([[old_key], None], HEADERS))
        assert pc.struct_field(error_column(with_headers, errors), "headers").to_pylist() == kept
    assert pc.struct_field(error_column(records, errors), "headers").to_pylist() == [None, None]


def test_moves_are_counted_and_come_back_from_tasks_and_tables() -> None:
    move = pa.array(["a", "b", None, "c"])
    op = pa.array(["delete", "upsert", "delete", None])
    moves = moves_among(move, op, [DecodeError(MOVED, ""), DecodeError("type", "")])
    assert moves == Moves(left=1, waiting=1)
    assert (TaskReport(moves=moves) + TaskReport(moves=Moves(2, 0))).moves == Moves(3, 1)
    landed: Batch = batch(3)
    for counted in (moves, Moves()):
        made = LandedBatch(landed, Counts(), Watermark(), 1, moves=counted)
        assert landed_from_properties(landed_to_properties(made), 1).moves == counted
