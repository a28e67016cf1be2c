"""Fields that no column takes: their types go together by one rule, whatever the order in which they are seen."""

from __future__ import annotations

from itertools import permutations

import pyarrow as pa
import pytest

from jobs.landing.task_report import RecordsRead, TaskReport, sum_up
from jobs.offsets import OffsetRange, TopicPartition
from jobs.schema.found_fields import MOST_IN_STRUCT, MOST_NAMED, FoundField, FoundFields, common_type, known_type
from jobs.schema.types import parse_type, type_name
from jobs.spark.spark_tasks import report_row, reports_in


@pytest.mark.parametrize(
    ("kinds", "together"),
    [
        (["int", "long"], "long"),
        (["long", "double"], "double"),
        (["long", "string"], "string"),
        (["decimal(5,2)", "decimal(9,2)", "decimal(3,2)"], "decimal(9,2)"),
        (["decimal(5,2)", "decimal(9,3)"], "string"),
        (["array<struct<p: decimal(5,2)>>", "array<struct<p: decimal(9,2)>>"], "array<struct<p: decimal(9,2)>>"),
        (["boolean", "double"], "string"),
        (["struct<a: long>", "string"], "string"),
        (["struct<a: long>", "array<long>"], "string"),
        (["array<long>", "array<double>"], "array<double>"),
        (["struct<a: long>", "struct<a: string>"], "struct<a: string>"),
        (["map<string,long>", "map<string,double>"], "map<string,double>"),
        (["long", "double", "boolean"], "string"),
    ],
)
def test_types_go_together_in_any_order(kinds: list[str], together: str) -> None:
    for order in permutations(kinds):
        found = parse_type(order[0])[0]
        for text in order[1:]:
            found = common_type(found, parse_type(text)[0])
        assert type_name(found) == together


def test_structs_have_the_fields_of_both_and_become_text_where_names_are_data() -> None:
    one, other = parse_type("struct<a: long, b: string>")[0], parse_type("struct<b: string, c: date>")[0]
    assert type_name(common_type(one, other)) == "struct<a: long, b: string, c: date>"
    left = pa.struct([(f"id{n}", pa.int64()) for n in range(MOST_IN_STRUCT)])
    assert common_type(left, pa.struct([("one_more", pa.int64())])) == pa.string()


def test_parts_of_which_nothing_is_known_are_left_out() -> None:
    kind = pa.struct([("a", pa.int64()), ("n", pa.null()), ("l", pa.list_(pa.null())), ("s", pa.struct([]))])
    assert known_type(kind) == pa.struct([("a", pa.int64())])
    assert known_type(pa.list_(pa.struct([("n", pa.null())]))) is None


def test_reports_add_up_and_travel() -> None:
    tp, other = TopicPartition("t", 0), TopicPartition("t", 1)
    offsets = {tp: OffsetRange(0, 9), other: OffsetRange(0, 5)}
    one = TaskReport({tp: RecordsRead(3, 10, OffsetRange(0, 3))}, FoundFields({("a",): FoundField(pa.int64(), 2)}))
    two = TaskReport(
        {tp: RecordsRead(1, 7, OffsetRange(3, 9)), other: RecordsRead(5, 20, OffsetRange(0, 5))},
        FoundFields({("a",): FoundField(pa.float64(), 1), ("s", "x"): FoundField(None, 4)}),
    )
    together = sum_up(reports_in([report_row(one), report_row(two)]), offsets, "t")
    assert (together.records, together.newest) == (9, {tp: 10, other: 20})
    assert together.fields.by_path == {("a",): FoundField(pa.float64(), 3), ("s", "x"): FoundField(None, 4)}
    assert together.fields.counts == {"a": 3, "s.x": 4}
    assert together.fields.within("s").by_path == {("x",): FoundField(None, 4)}
    assert sum_up([], offsets, "t") == TaskReport()


def test_a_report_stays_small_whatever_the_records_have() -> None:
    fields = FoundFields({(f"f{n}",): FoundField(pa.int64(), 1) for n in range(MOST_NAMED)})
    found = fields + FoundFields({("one_more",): FoundField(pa.int64(), 1), ("f1",): FoundField(pa.int64(), 1)})
    assert (len(found.by_path), found.more, found.by_path["f1",].records) == (MOST_NAMED, 1, 2)
