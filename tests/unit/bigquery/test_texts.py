"""Which texts BigQuery takes for a type of `column_types`."""

from __future__ import annotations

import pyarrow as pa
import pytest

from jobs.destinations.bigquery.texts import unreadable
from jobs.destinations.held_values import Held
from jobs.destinations.refusal import BATCH, OFFSET, PARTITION, TOPIC, HeldColumn, Refusal
from tests.kit.arrow import copied

GOOD = {
    "JSON": ['{"a": [1, null]}', "1", '"x"', " [] ", "1e400"],
    "DATE": ["2024-02-29", "1-1-1", "9999-12-31"],
    "TIME": ["00:00:00", "9:05:01.25", "23:59:59.999999"],
    "DATETIME": ["2024-02-29", "2024-02-29 12:00:00", "2024-02-29T12:00:00.5"],
    "TIMESTAMP": [
        "2024-02-29",
        "2024-02-29 12:00:00",
        "2024-02-29T12:00:00Z",
        "2024-02-29 12:00:00.5+02",
        "2024-02-29 12:00:00-08:30",
        "2024-02-29 12:00:00 America/Los_Angeles",
        "2024-02-29 12:00:00 UTC",
    ],
    "NUMERIC": ["1", "-1.5", " .5 ", "1e10", "99999999999999999999999999999.5"],
    "BIGNUMERIC": ["1e38", "-5.7e38"],
}
BAD = {
    "JSON": ["", "{", "NaN", "{'a': 1}", "[1,]", "[" * 100_000],
    "DATE": ["", "2024-02-30", "2024/02/29", "2024-02-29 12:00:00", "0000-01-01", "today"],
    "TIME": ["", "25:00:00", "noon", "12:00"],
    "DATETIME": ["2024-13-01 00:00:00", "2024-02-29T", "2024-02-29 12:00:00Z"],
    "TIMESTAMP": ["2024-02-30 12:00:00", "1709208000", "soon"],
    "NUMERIC": ["", "1,5", "1_0", "NaN", "inf", "1e29", "one"],
    "BIGNUMERIC": ["6e38", "x"],
}


@pytest.mark.parametrize("kind", GOOD)
def test_texts_of_a_type(kind: str) -> None:
    judge = unreadable(f"string_to_{kind}")
    assert judge
    texts = [None, *GOOD[kind], *BAD[kind]]
    found = copied(judge)(pa.array(texts, pa.string()))
    assert [text for text, bad in zip(texts, found, strict=True) if bad] == BAD[kind]


def test_other_columns_are_not_judged() -> None:
    assert [unreadable(name) for name in (None, "string_to_GEOGRAPHY", "long_to_TIME")] == [None] * 3


def test_row_with_such_a_text_becomes_a_letter() -> None:
    held = Held(unreadable=unreadable("string_to_DATE"))
    column = HeldColumn("c0", "day", pa.string(), "DATE", nullable=True, is_key=False, held=held)
    rows = {"c0": ["2024-01-01", "x", None], TOPIC: ["t"] * 3, PARTITION: [0] * 3, OFFSET: [0, 1, 2], BATCH: [1] * 3}
    found = Refusal("bigquery a.b", (column,), "quarantine", "clamp", "me", {}).fit(pa.table(rows))
    assert found.rows[OFFSET].to_pylist() == [0, 2]
    (letter,) = found.dead_letters.to_pylist()
    assert (letter["offset"], letter["reason"]) == (1, "a text that is none of the column's type")
