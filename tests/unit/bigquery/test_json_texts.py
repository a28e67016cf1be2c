"""Which texts BigQuery takes for JSON."""

from __future__ import annotations

import pyarrow as pa

from jobs.destinations.bigquery.json_texts import not_json
from jobs.destinations.limits import UNREADABLE, Limits
from jobs.destinations.refusal import BATCH, OFFSET, PARTITION, TOPIC, LimitedColumn, Refusal
from tests.kit.arrow import copied

DEEPEST = "[" * 499 + "{}" + "]" * 499
GOOD = ['{"a": [1, null]}', "1", '"x"', " [] ", "1e308", "-0", '"\\ud83d\\ude00 \\\\ud83d"', DEEPEST]
EXACT = ["18446744073709551615", "-9223372036854775808", "1" + "0" * 22, "1e22", "0.1", "1.10", "5e-324", "[0.0]",
         "52.520006599999998", "0.10000000000000001"]  # fmt: skip
CHANGED = ["18446744073709551616", "-9223372036854775809", "9" * 300, "0.12345678901234567890", '{"a":[1e-400]}']
HUGE = ["1e-99999999999999999999", "9" * 5000]
BAD = ["", "{", "NaN", "{'a': 1}", "[1,]", "[" * 100_000, "1e400", "9" * 400, '"\\ud83d"', f"[{DEEPEST}]", "{}\u00a0"]


def test_texts_that_are_json() -> None:
    texts = [None, *GOOD, *EXACT, *BAD, *CHANGED, *HUGE, str([[]] * 600)]
    found = copied(not_json)(pa.array(texts, pa.string()))
    assert [text for text, bad in zip(texts, found, strict=True) if bad] == [*BAD, *CHANGED, *HUGE]


def test_row_with_such_a_text_becomes_a_dead_letter() -> None:
    column = LimitedColumn(
        "c0", "doc", pa.string(), "JSON", nullable=True, is_key=False, limits=Limits(checks=((UNREADABLE, not_json),))
    )
    rows = {"c0": ["{}", "x", None], TOPIC: ["t"] * 3, PARTITION: [0] * 3, OFFSET: [0, 1, 2], BATCH: [1] * 3}
    found = Refusal("bigquery a.b", (column,), "quarantine", "clamp", "me", {}).fit(pa.table(rows))
    assert found.rows[OFFSET].to_pylist() == [0, 2]
    (dead_letter,) = found.dead_letters.to_pylist()
    assert (dead_letter["offset"], dead_letter["reason"]) == (1, "a text that is none of the column's type")
