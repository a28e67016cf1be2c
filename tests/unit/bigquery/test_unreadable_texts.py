"""Which texts BigQuery need not be asked about."""

from __future__ import annotations

from datetime import date, timedelta

import pyarrow as pa
import pytest

from jobs.destinations.bigquery.unreadable_texts import without_certain

MOMENT = "2024-02-29 23:59:59"
CERTAIN = {
    "DATE": ["2024-02-29", "1000-01-01", "9999-12-31"],
    "TIME": ["00:00:00", "23:59:59.999999", "12:30:00.5"],
    "DATETIME": [MOMENT, "2024-02-29T23:59:59", "9999-12-31 23:59:59.999999"],
    "TIMESTAMP": [
        MOMENT, f"{MOMENT}Z", f"{MOMENT} UTC", f"{MOMENT}.123456+13:59", "2024-02-29T00:00:00-13:59",
        "9999-12-31 23:59:59.999999Z", "9999-12-31T23:59:59+01:00", "1000-01-01 00:00:00+13:59",
    ],
    "NUMERIC": ["0", "-1.5", "007", "9" * 28 + "." + "9" * 9],
    "BIGNUMERIC": ["-1.5", "9" * 19 + "." + "9" * 38],
}  # fmt: skip
ASKED = {
    "DATE": ["", "2024-2-29", "2023-02-29", "1900-02-29", "0000-01-01", "10000-01-01", "2024-04-31", "2024-00-10",
             "2024-01-00", "2024-01-01\n", " 2024-01-01", "20240101", "2024-W01-1", "２０２４-01-01", MOMENT],
    "TIME": ["24:00:00", "23:60:00", "23:59:60", "1:00:00", "12:00", "12:00:00.", "12:00:00.1234567", "12:00:00Z"],
    "DATETIME": ["2024-02-29", "2024-02-29T", "2024-02-30 00:00:00", f"{MOMENT}Z", "2024-02-29  00:00:00"],
    "TIMESTAMP": ["2024-02-29", f"{MOMENT}+14:30", f"{MOMENT}+01", f"{MOMENT}UTC", f"{MOMENT} Europe/Oslo",
                  "9999-12-31 23:59:59-00:01", "2023-02-29 00:00:00Z", f"{MOMENT}.1234567Z"],
    "NUMERIC": ["", "-", ".5", "5.", "1e3", "0x1", "NaN", " 1", "1,5", "9" * 29, "0.0000000001", "１２"],
    "BIGNUMERIC": ["9" * 20, f"0.{'0' * 39}"],
    "GEOGRAPHY": ["POINT(1 2)"],
}  # fmt: skip


@pytest.mark.parametrize("kind", ASKED)
def test_texts_that_are_certain(kind: str) -> None:
    texts = [*CERTAIN.get(kind, []), *ASKED[kind]]
    for form in (pa.string(), pa.large_string()):
        assert without_certain(pa.array(texts, form), kind).to_pylist() == ASKED[kind]


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP"])
def test_only_days_that_there_are(kind: str) -> None:
    rest = "" if kind == "DATE" else " 12:00:00"
    years = (1000, 1999, 2023, 2024, 2100, 9996)
    texts = [f"{y}-{m:02}-{d:02}" for y in years for m in range(14) for d in range(33)]
    found = without_certain(pa.array([text + rest for text in texts]), kind).to_pylist()
    days = {str(date(y, 1, 1) + timedelta(n)) for y in years for n in range(365 + (y % 4 == 0 and y % 100 > 0))}
    assert found == [text + rest for text in texts if text not in days]
