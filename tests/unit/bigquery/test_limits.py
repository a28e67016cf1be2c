"""Values of declared types that the columns of a BigQuery table do not hold."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from google.cloud.bigquery import ArrayQueryParameter, SchemaField

from jobs.destinations.bigquery.columns import destination_columns
from jobs.destinations.bigquery.direct_load import takes_landed_rows
from jobs.destinations.bigquery.limits import limited_columns
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.unreadable_texts import AskedTexts
from jobs.destinations.limits import DAY, Mask, out_of_range
from jobs.destinations.refusal import BATCH, OFFSET, PARTITION, TOPIC, LimitedColumn, Refusal
from jobs.schema.types import parse_columns
from resources.bigquery import BigQuery
from tests.kit import specs
from tests.kit.arrow import copied

LAST_DAY = 2932896


@pytest.mark.parametrize(
    ("declared", "wanted", "first", "last"),
    [
        ("int", "DATE", -719162, LAST_DAY),
        ("int", "TIME", 0, DAY // 1000 - 1),
        ("long", "TIME", 0, DAY - 1),
        ("long", "NUMERIC", None, None),
    ],
)
def test_numbers_that_become_no_date_or_time(declared: str, wanted: str, first: int | None, last: int | None) -> None:
    entry = specs.table("bigquery", "append", "d.dest", column_types={"n": wanted})
    spec = specs.spec(entry, columns={"id": "long", "n": declared})
    table = specs.entry(spec, BigQueryTable)
    columns = destination_columns(spec, table)
    limited = next(c for c in limited_columns(spec, table, columns) if c.label == "n")
    assert limited.may_refuse is (first is not None)
    assert takes_landed_rows(spec, table, columns) is (first is None), "files would not be judged"
    if first is not None and last is not None:
        found = out_of_range(pa.array([first, last, first - 1, last + 1], limited.declared), limited.limits)
        assert found is not None
        assert found.tolist() == [False, False, True, True]


def _all_are_read(texts: pa.Array) -> Mask:
    return np.zeros(len(texts), bool)


def judged(declared: str, field: SchemaField, wanted: str | None = None) -> tuple[LimitedColumn, bool]:
    """The column `n` of a table that has this field, and whether landed files are loaded without a look at rows."""
    types = {"column_types": {"n": wanted}} if wanted else {}
    spec = specs.spec(specs.table("bigquery", "append", "d.dest", **types), columns={"id": "long", "n": declared})
    table = specs.entry(spec, BigQueryTable)
    columns, present = destination_columns(spec, table), [SchemaField("id", "INTEGER"), field]
    (limited,) = (
        c for c in limited_columns(spec, table, columns, present, lambda _type: _all_are_read) if c.label == "n"
    )
    return limited, takes_landed_rows(spec, table, columns, present)


INSIDE = SchemaField(
    "N",
    "RECORD",
    fields=[
        SchemaField("B", "STRING", "REPEATED", max_length=3),
        SchemaField("a", "RECORD", fields=[SchemaField("x", "BYTES", max_length=2), SchemaField("y", "STRING")]),
    ],
)


@pytest.mark.parametrize(
    ("declared", "field", "wanted", "values", "refused"),
    [
        ("string", SchemaField("n", "STRING", max_length=3), None, ["äöü", "äöüß", None, ""], [1]),
        ("binary", SchemaField("n", "BYTES", max_length=3), None, [b"abc", "äö".encode(), None], [1]),
        ("array<string>", SchemaField("n", "STRING", "REPEATED", max_length=1), None, [["a"], ["a", "bc"], None], [1]),
        (
            "struct<a: struct<x: binary, y: string>, b: array<string>>",
            INSIDE,
            None,
            [
                {"a": {"x": b"ab", "y": "abcd"}, "b": ["abc"]},
                None,
                {"a": None, "b": ["abcd"]},
                {"a": {"x": b"abc", "y": None}, "b": None},
            ],
            [2, 3],
        ),
        (
            "map<string,string>",
            SchemaField(
                "n",
                "RECORD",
                "REPEATED",
                fields=[SchemaField("key", "STRING", max_length=1), SchemaField("value", "STRING")],
            ),
            None,
            [[("a", "long")], [("a", "b"), ("long", "b")], None],
            [1],
        ),
        ("long", SchemaField("n", "NUMERIC", precision=4, scale=1), "NUMERIC", [999, -1000, None, 1000], [1, 3]),
        ("int", SchemaField("n", "BIGNUMERIC", precision=2), "BIGNUMERIC", [99, 100, -100, None], [1, 2]),
        (
            "string",
            SchemaField("n", "NUMERIC", precision=4, scale=1),
            "NUMERIC",
            ["999.9", "1e3", "1.25", "1.50", "-1000", None, "none", "0.00001", "NaN"],
            [1, 2, 4, 7],
        ),
        # More digits than Python's decimals have in arithmetic.
        (
            "string",
            SchemaField("n", "NUMERIC", precision=38, scale=9),
            "NUMERIC",
            [f"-{'9' * 29}.{'9' * 9}", f"1{'0' * 29}"],
            [1],
        ),
    ],
)
def test_what_a_table_that_exists_has_no_room_for_is_refused(
    declared: str, field: SchemaField, wanted: str | None, values: list[Any], refused: list[int]
) -> None:
    limited, as_landed = judged(declared, field, wanted)
    assert limited.may_refuse
    assert not as_landed, "files would not be judged"
    refusal = copied(Refusal("t", (limited,), "quarantine", "refuse", "x", {}))
    kind, places = parse_columns({"n": declared}).field("n").type, list(range(len(values)))
    rows = {limited.name: pa.array(values, kind), TOPIC: ["t"] * len(values), PARTITION: [0] * len(values)}
    fit = refusal.fit(pa.table({**rows, OFFSET: places, BATCH: places}))
    assert fit.dead_letters["offset"].to_pylist() == refused
    assert fit.rows[OFFSET].to_pylist() == [n for n in places if n not in refused]
    assert "(" in limited.type or "RECORD" in limited.type, limited.type


@pytest.mark.parametrize(
    ("declared", "field", "wanted"),
    [
        ("string", SchemaField("n", "STRING"), None),
        ("decimal(8,2)", SchemaField("n", "NUMERIC", precision=10, scale=2), None),
        ("long", SchemaField("n", "NUMERIC"), "NUMERIC"),
        ("string", SchemaField("other", "STRING", max_length=3), None),
    ],
)
def test_files_are_loaded_as_they_are_where_every_value_has_room(
    declared: str, field: SchemaField, wanted: str | None
) -> None:
    limited, as_landed = judged(declared, field, wanted)
    assert (limited.may_refuse, as_landed) == (False, True)


def test_each_question_about_texts_fits_into_a_request() -> None:
    """The client sends a letter of another alphabet as six bytes."""
    asked: list[list[str]] = []

    def arrow(_: str, __: str, arrays: list[ArrayQueryParameter]) -> pa.Table:
        asked.append(arrays[0].values)
        assert len(json.dumps(arrays[0].to_api_repr())) < 10_000_000
        return pa.table({"text": pa.array([], pa.string())})

    texts = [f"улица Ленина, дом {n}, квартира пятая, второй этаж направо" for n in range(40_000)]
    service = cast(BigQuery, SimpleNamespace(arrow=arrow))
    assert not AskedTexts(service, "t", "GEOGRAPHY")(pa.array(texts)).any()
    assert [text for part in asked for text in part] == texts


def test_texts_in_large_arrays_are_judged_too() -> None:
    """As a scan by pyiceberg may return them."""
    limited, _ = judged("array<string>", SchemaField("n", "STRING", "REPEATED", max_length=1))
    ((_, judge),) = limited.limits.checks
    found = judge(pa.array([["a"], ["a", "bc"], None], pa.large_list(pa.large_string())))
    assert found is not None
    assert found.tolist() == [False, True, False]
