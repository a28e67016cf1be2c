"""Which records a transform fails on, and the step that decodes for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from jobs.changes.columns import landing_schema, value_fields
from jobs.decode.decoders import decoder_for
from jobs.landing.failing_records import error_class, failing_records
from jobs.landing.readers import record_reader
from jobs.landing.topic_decoder import TopicDecoder
from jobs.landing.transform import DecodeStep
from jobs.offsets import OffsetRange, TopicPartition
from resources.errors import BadRecords
from tests.kit import specs
from tests.kit.arrow import kafka_records
from tests.kit.batches import batch

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
Ranges = Mapping[TopicPartition, OffsetRange]


class Failed(PySparkException):
    """An error as a Spark Connect server sends it: with the name of its class."""

    def getCondition(self) -> str | None:
        return self._message


DIVIDE = Failed("DIVIDE_BY_ZERO")


def probe(bad: set[tuple[TopicPartition, int]], error: PySparkException = DIVIDE) -> Callable[[Ranges], None]:
    def evaluate(ranges: Ranges) -> None:
        if any(tp in ranges and ranges[tp].start <= offset < ranges[tp].end for tp, offset in bad):
            raise error

    return evaluate


@pytest.mark.parametrize(
    "bad", [set(), {(A, 0)}, {(B, 107)}, {(A, 99), (B, 100), (B, 101)}, {(A, n) for n in range(40, 50)}]
)
def test_failing_records_are_found_by_halving(bad: set[tuple[TopicPartition, int]]) -> None:
    found = failing_records({A: OffsetRange(0, 100), B: OffsetRange(100, 108)}, probe(bad))
    assert found == {(tp.topic, tp.partition, offset): "DIVIDE_BY_ZERO" for tp, offset in bad}


def test_more_than_a_few_stop_the_batch() -> None:
    with pytest.raises(BadRecords, match=r"more than 10 records of one batch .DIVIDE_BY_ZERO.") as refused:
        failing_records({A: OffsetRange(0, 100)}, probe({(A, n) for n in range(100)}))
    assert "try_cast" in refused.value.remedy


def test_other_errors_are_not_the_records_fault() -> None:
    other = Failed("TABLE_OR_VIEW_NOT_FOUND")
    assert error_class(other) is None
    assert error_class(PySparkException("a server's trouble")) is None
    assert error_class(Failed("INVALID_HANDLE.SESSION_CLOSED")) is None
    assert error_class(Failed("CAST_INVALID_INPUT")) == "CAST_INVALID_INPUT"
    assert (
        error_class(PySparkException("task 3: java.lang.ArithmeticException: long overflow")) == "ArithmeticException"
    )
    with pytest.raises(PySparkException):
        failing_records({A: OffsetRange(0, 100)}, probe({(A, 0)}, other))


def test_decode_step_keeps_a_row_for_every_record() -> None:
    decoder = TopicDecoder(decoder_for("json", pa.struct([("id", pa.int64())])))
    step = DecodeStep(decoder, decoder, {("t", 0, 3): "CAST_INVALID_INPUT"})
    one, four = {"id": 1}, {"id": 4}
    (read,) = step([kafka_records((one, one), (one, b"{"), (b"{", None), (four, four))])
    assert read.schema == step.schema
    assert read.column("row").to_pylist() == [{"id": 1}, None, None, {"id": 4}]
    problems = [(p["stage"], p["kind"]) if p else None for p in read.column("problem").to_pylist()]
    assert problems == [None, ("value", "undecodable"), ("key", "undecodable"), ("transform", "transform")]
    assert read.column("filtered").to_pylist() == [False] * 4


@pytest.mark.parametrize("key", [{}, {"key": {"columns": {"k": "string"}}}])
@pytest.mark.parametrize(
    ("sql", "found"), [("select * from records", {"id": 1}), ("select id + 1 as id, n from records", None)]
)
def test_a_bad_value_has_its_key_where_the_statement_passes_it(
    key: dict[str, Any], sql: str, found: dict[str, int] | None
) -> None:
    """Whatever columns the statement reads of the record's own key."""
    source = {**key, "transform": sql}
    made = specs.spec(specs.table(mode="upsert"), columns={"id": "long", "n": "long"}, key="id", source=source)
    reader = record_reader(made, batch(1, ranges={A: OffsetRange(0, 1)}), landing_schema(made))
    step = DecodeStep(reader.key_decoder, reader.value_decoder)
    decoded = step.read(kafka_records(({"k": "a"}, {"id": 1, "n": "no number"}), places=[("a", 0, 0)]))
    landed = reader.read(decoded.append_column("result", pa.array([None], pa.struct(list(value_fields(made))))))
    (row,) = landed.to_pylist()
    assert (row["key"], row["error"]["stage"]) == (found, "value")


def test_results_are_read_by_the_forms_of_their_columns() -> None:
    ref = "61f0c404-5cb3-11e7-907b-a6006ad3dba0"
    made = specs.spec(columns={"ref": "uuid"}, source={"transform": "select upper(ref) as n, * from records"})
    reader = record_reader(made, batch(1, ranges={A: OffsetRange(0, 3)}), landing_schema(made))
    step = DecodeStep(reader.key_decoder, reader.value_decoder)
    records = [(None, {"ref": ref})] * 3
    decoded = step.read(kafka_records(*records, places=[("a", 0, n) for n in range(3)]))
    result = [{"n": "a", "ref": ref.upper()}, {"n": "b", "ref": "x"}, {"n": "c", "ref": None}]
    landed = reader.read(decoded.append_column("result", pa.array(result))).to_pylist()
    assert [row["value"] for row in landed] == [{"n": "a", "ref": ref}, None, {"n": "c", "ref": None}]
    assert [row["error"] and (row["error"]["stage"], row["error"]["message"]) for row in landed] == [
        None,
        ("transform", "column ref: expected uuid, found a value that is none"),
        None,
    ]
