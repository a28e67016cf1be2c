"""The demo's data: the stream of changes against the table that is computed from the CSV files by other means."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections import Counter
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

from jobs.decode.decoders import decoder_for
from jobs.schema.types import parse_columns
from resources.local.flights.changes import EVERY, MALFORMED, FlightChanges, Record
from resources.local.flights.columns import KEY, OP, TABLE_COLUMNS
from resources.local.flights.expected import expected_table
from resources.local.flights.source import csv_folder
from tests.kit.arrow import row_type

KEY_COLUMNS = {name: TABLE_COLUMNS[name] for name in KEY}
VALUE_COLUMNS = {OP: "string not null", **TABLE_COLUMNS}


@pytest.fixture(scope="module")
def january() -> list[Record]:
    return list(FlightChanges(1))


def _rows(month: int) -> list[dict[str, str]]:
    with zipfile.ZipFile(csv_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        return [row for row in csv.DictReader(io.TextIOWrapper(file, "utf-8")) if row["month"] == str(month)]


# Winter, and the months in which the clocks change.
@pytest.mark.parametrize(
    "month", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(11, marks=pytest.mark.slow)]
)
def test_applied_changes_are_the_expected_table(month: int) -> None:
    """Decoded by the product, each key's last change wins: what the pipeline has to do."""
    changes = FlightChanges(month)
    records = [record for record in changes if record.malformed is None]
    keys = decoder_for("json", row_type(KEY_COLUMNS)).decode(pa.array([r.key for r in records]))
    values = decoder_for("json", row_type(VALUE_COLUMNS)).decode(pa.array([r.value for r in records]))
    assert not keys.errors
    assert not values.errors
    table: dict[tuple[Any, ...], dict[str, Any] | None] = {}
    for key, value in zip(keys.values.to_pylist(), values.values.to_pylist(), strict=True):
        deleted = value is None or value.pop("op") == "d"
        assert deleted or {name: value[name] for name in KEY} == key
        table[tuple(key.values())] = None if deleted else value
    kept = [table[key] for key in sorted(table) if table[key] is not None]
    expected = expected_table(month)
    assert pa.Table.from_pylist(kept, schema=expected.schema).equals(expected)


def test_the_expected_table_counts_what_the_file_has() -> None:
    rows = _rows(1)
    table = expected_table(1)
    assert table.schema == parse_columns(TABLE_COLUMNS)
    assert table.num_rows == sum(row["dep_time"] not in ("", "NA") for row in rows) == 26_483
    assert table["arrived"].null_count == 85  # diverted
    first = next(row for row in table.to_pylist() if (row["carrier"], row["flight"]) == ("UA", 1545))
    # New York to Houston, scheduled 5:15 to 8:19: the clocks differ by an hour.
    assert first["scheduled"].isoformat() == "2013-01-01T10:15:00+00:00"
    assert (first["departed"].isoformat(), first["dep_delay"]) == ("2013-01-01T10:17:00+00:00", 2)
    assert (first["arrived"].isoformat(), first["arr_delay"]) == ("2013-01-01T14:30:00+00:00", 11)


def test_numbers_of_january(january: list[Record]) -> None:
    changes = FlightChanges(1)
    ops = Counter("tombstone" if r.value is None else json.loads(r.value)["op"] for r in january if r.malformed is None)
    assert ops == {"c": 27_004, "u": 26_483 + 26_398, "d": 260, "tombstone": 261}
    assert (changes.changes, len(changes), len(january)) == (80_406, 81_210, 81_210)
    assert Counter(r.malformed for r in january if r.malformed) == changes.malformed == dict.fromkeys(MALFORMED, 201)
    assert sum(changes.malformed.values()) == 80_406 // EVERY


def test_records_are_in_the_order_of_their_times_and_flights_fly_in_theirs(january: list[Record]) -> None:
    assert [r.timestamp for r in january] == sorted(r.timestamp for r in january)
    stages: dict[bytes, str] = {}
    for record in january:
        if record.malformed is None:
            op = "d" if record.value is None else json.loads(record.value)["op"]
            stages[record.route] = stages.get(record.route, "") + op
    assert set(stages.values()) == {"cd", "cu", "cuu"}


def test_malformed_records_cannot_be_decoded_and_the_others_can(january: list[Record]) -> None:
    keys = decoder_for("json", row_type(KEY_COLUMNS)).decode(pa.array([r.key for r in january]))
    values = decoder_for("json", row_type(VALUE_COLUMNS)).decode(pa.array([r.value for r in january]))
    for index, record in enumerate(january):
        found = (keys.errors.get(index), values.errors.get(index))
        kinds = tuple(error.kind if error else None for error in found)
        assert (
            kinds
            == {
                None: (None, None),
                "cut off": (None, "undecodable"),
                "text for a number": (None, "type"),
                "key part missing": ("missing", "missing"),
                "no key": (None, None),
            }[record.malformed]
        )
        assert (record.key is None) == (record.malformed == "no key")
        assert record.malformed is not None or record.key == record.route


def test_the_same_arguments_give_the_same_bytes(january: list[Record]) -> None:
    assert january[:9_000] == list(islice(FlightChanges(1), 9_000))
    assert january[:100] != list(islice(FlightChanges(2), 100))
