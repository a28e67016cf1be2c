"""The statements and the staging, run on the emulator without Kafka and Spark: types, keys, layouts, evolution."""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.cloud.bigquery import ArrayQueryParameter

from jobs.destinations.bigquery import unreadable_texts
from jobs.destinations.bigquery.limits import limited_columns
from jobs.destinations.bigquery.unreadable_texts import AskedTexts
from jobs.destinations.limits import UNREADABLE
from resources.bigquery import BigQuery
from tests.kit.bigquery import alone
from tests.kit.bigquery_table import Change, Table, delete, put

DATASET = "statements"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BigQuery]:
    """An emulator alone: nothing here needs Kafka or Spark."""
    with alone(tmp_path_factory.mktemp("emulator")) as found:
        found.create_dataset(DATASET)
        yield found


@pytest.fixture
def name(emulator: BigQuery) -> Iterator[str]:
    made = f"{DATASET}.t_{uuid.uuid4().hex[:8]}"
    yield made
    emulator.delete_table(made)
    emulator.delete_table(f"{made}_tmp")


LONGEST = Decimal("-12345678901234567890123456789.123456789")
SCALARS: dict[str, tuple[str, Any, Any]] = {
    "yes": ("boolean", True, True),
    "small": ("int", -(2**31), -(2**31)),
    "large": ("long", 2**63 - 1, 2**63 - 1),
    "single": ("float", 1.5, 1.5),
    "twice": ("double", 1e300, 1e300),
    "not_a_number": ("double", math.nan, math.nan),
    "infinite": ("double", math.inf, math.inf),
    "below": ("double", -math.inf, -math.inf),
    "numeric": ("decimal(38,9)", LONGEST, LONGEST),
    "fine": ("decimal(20,15)", Decimal("12345.123456789012345"), Decimal("12345.123456789012345")),
    "text": ("string", "naïve ‘text’ \\ `", "naïve ‘text’ \\ `"),
    "empty": ("string", "", ""),
    "raw": ("binary", b"\x00\xff", b"\x00\xff"),
    "day": ("date", date(1969, 12, 31), date(1969, 12, 31)),
    "at": (
        "timestamp",
        datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    ),
    "wall": ("timestamp_ntz", datetime(2262, 4, 11, 1, 2, 3, 4), datetime(2262, 4, 11, 1, 2, 3, 4)),
    "tags": ("array<string>", ["a", "b"], ["a", "b"]),
    "none_tags": ("array<long>", None, []),
    "pairs": ("map<string,long>", [("k", 1), ("l", None)], [{"key": "k", "value": 1}, {"key": "l", "value": None}]),
    "nested": (
        "struct<x: int, deep: struct<y: array<date>>>",
        {"x": 1, "deep": {"y": [date(2024, 2, 29)]}},
        {"x": 1, "deep": {"y": [date(2024, 2, 29)]}},
    ),
    "things": (
        "array<struct<k: string, m: map<string,string>>>",
        [{"k": "a", "m": [("p", "q")]}, {"k": "b", "m": []}],
        [{"k": "a", "m": [{"key": "p", "value": "q"}]}, {"k": "b", "m": []}],
    ),
    "no_struct": ("struct<x: int>", None, None),
}
CONVERTED: dict[str, tuple[str, str, Any, Any]] = {
    "doc": ("string", "JSON", '{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}),
    "place": ("string", "GEOGRAPHY", "POINT(30 10)", "POINT(30 10)"),
    "clock": ("string", "TIME", "23:59:59.999999", time(23, 59, 59, 999999)),
    "millis": ("int", "TIME", 3_723_004, time(1, 2, 3, 4000)),
    "micros": ("long", "TIME", 3_723_000_005, time(1, 2, 3, 5)),
    "days": ("int", "DATE", -1, date(1969, 12, 31)),
    "zoned": ("string", "TIMESTAMP", "2024-02-29T12:00:00.000001+02:00", datetime(2024, 2, 29, 10, 0, 0, 1, UTC)),
    "price": ("string", "NUMERIC", "12.345678901", Decimal("12.345678901")),
    "wide": ("decimal(20,2)", "BIGNUMERIC", Decimal("1.25"), Decimal("1.25")),
    "missing": ("string", "JSON", None, None),
}


@pytest.mark.parametrize("mode", ["append", "upsert_delete"])
def test_types_arrive_as_they_were(mode: str, emulator: BigQuery, name: str) -> None:
    # Inside a MERGE the emulator forgets the named argument of PARSE_JSON; there Google's analyzer has the only word.
    converted = {n: c for n, c in CONVERTED.items() if mode == "append" or c[1] != "JSON"}
    columns = {n: kind for n, (kind, _, _) in SCALARS.items()} | {n: kind for n, (kind, *_) in converted.items()}
    types = {n: wanted for n, (_, wanted, _, _) in converted.items()}
    table = Table(
        emulator, name, {"columns": {"id": "long", **columns}, "table": {"mode": mode, "column_types": types}}
    )
    table.prepare()
    given = {n: value for n, (_, value, _) in SCALARS.items()} | {n: value for n, (*_, value, _) in converted.items()}
    expected = {n: want for n, (_, _, want) in SCALARS.items()} | {n: want for n, (*_, want) in converted.items()}
    table.load([put(1, **given), put(2)])
    table.merge(1, 1)
    first, second = sorted(table.rows(), key=lambda row: row["id"])
    for column, value in expected.items():
        if value != value:  # noqa: PLR0124 - NaN
            assert math.isnan(first[column])
        else:
            assert first[column] == value, column
    repeated = {n for n, (kind, _, _) in SCALARS.items() if kind.startswith(("array", "map"))}
    assert all(second[n] == ([] if n in repeated else None) for n in expected)


# Those that need not be asked about, others that BigQuery reads, and those that it does not.
TEXTS: dict[str, tuple[list[str | None], list[str], list[str]]] = {
    "GEOGRAPHY": ([None], ["POINT(30 10)", "POINT(30 10)", "LINESTRING(1 1, 2 2)"], ["POINT(1", "", "here"]),
    "DATE": (["2024-02-29", "1000-01-01", "9999-12-31"], ["2024-2-9", "0999-12-31"], ["", "2024-02-30", "today"]),
    "TIME": ([None, "00:00:00", "23:59:59.999999"], ["1:02:03"], ["25:00:00", "noon"]),
    "DATETIME": (
        ["2024-02-29T12:00:00.5", "9999-12-31 23:59:59.999999"],
        ["2024-02-29"],
        ["2024-13-01 00:00:00", "2024-02-29T"],
    ),
    "TIMESTAMP": (
        ["2024-02-29 12:00:00-08:30", "9999-12-31T23:59:59.999999Z", "2024-02-29 12:00:00+13:59",
         "2024-02-29 12:00:00-13:59", "2024-02-29 12:00:00 UTC", "9999-12-31 23:59:59+00:01", "2024-02-29T12:00:00"],
        ["2024-02-29", "2024-02-29 12:00:00 Europe/Oslo"],
        ["2024-02-30 12:00:00", "2024-01-01 00:00:00 Foo/Bar"],
    ),
    "NUMERIC": (
        ["-1.5", "007", "1.100000000", "9" * 28 + "." + "9" * 9],
        ["1.1000000000", "1e10", "9" * 29],
        ["1.0000000001", "1e-39", "1e29", "one", "１２"],
    ),
    "BIGNUMERIC": (
        ["1.5", "-" + "9" * 19 + "." + "9" * 38],
        [f"0.{'3' * 38}00", "1e-38", "0e-40"],
        ["x", f"0.{'3' * 39}", "1e-39"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", TEXTS)
def test_texts_of_another_type_are_found_before_they_are_sent(
    kind: str, emulator: BigQuery, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    certain, good, bad = TEXTS[kind]
    texts, asked = [*certain, *good, *bad, *good], list[str]()

    def ask(self: BigQuery, text: str, where: str, arrays: Sequence[ArrayQueryParameter]) -> pa.Table:
        asked.extend(arrays[0].values)
        return arrow(self, text, where, arrays)

    arrow = BigQuery.arrow
    monkeypatch.setattr(BigQuery, "arrow", ask)
    judge = AskedTexts(emulator, name, kind)
    for most in (5_000_000, 50):
        monkeypatch.setattr(unreadable_texts, "_MOST_BYTES", most)
        found = judge(pa.array(texts, pa.string())).tolist()
        assert [text for text, refused in zip(texts, found, strict=True) if refused] == bad
    assert sorted(asked) == sorted([*{*good, *bad}] * 2)
    with monkeypatch.context() as all_asked:
        all_asked.setattr(unreadable_texts, "without_certain", lambda given, _: given)
        assert not judge(pa.array(certain, pa.string())).any()
    document = {
        "columns": {"id": "long", "place": "string"},
        "table": {"mode": "append", "column_types": {"place": kind}},
    }
    table = Table(emulator, name, document)
    limited = limited_columns(table.spec, table.spec_table, table.columns, (), partial(AskedTexts, emulator, name))
    assert [(c.label, c.limits.checks) for c in limited if c.may_refuse] == [("place", ((UNREADABLE, judge),))]
    assert not table.says_op, "files would not be judged"


ALIKE = {n: case for n, case in SCALARS.items() if n not in ("raw", "wall", "fine") and "<" not in case[0]}


@pytest.mark.parametrize(
    "mode", ["append", "upsert_delete", *(pytest.param(m, marks=pytest.mark.slow) for m in ("upsert", "delete"))]
)
def test_landed_files_give_what_sent_rows_give(mode: str, emulator: BigQuery, name: str, tmp_path: Path) -> None:
    """Landed deletes say what they took away; the statement goes by their operation."""
    columns = {"id": "long", "name": "string", "place": "struct<x: int, deep: struct<y: date>>"}
    columns |= {n: kind for n, (kind, _, _) in ALIKE.items()}
    given = {n: value for n, (_, value, _) in ALIKE.items()}
    place = {"x": 1, "deep": {"y": date(2024, 2, 29)}}
    batches = [
        [put(1, name="a", place=place, **given), put(2, name="b"), put(3, name="c"), put(3, name="d")],
        [put(1, name="e"), delete(2), put(4, name="f", place={"x": None, "deep": None}), delete(5), put(5, name="g")],
    ]
    landed = Table(emulator, name, {"columns": columns, "table": {"mode": mode}})
    sent = Table(emulator, f"{name}_sent", {"columns": columns, "table": {"mode": mode}})
    for table in (landed, sent):
        table.prepare()
        assert table.says_op
    for number, changes in enumerate(batches, start=1):
        landed.load_landed(f"file://{tmp_path}", changes)
        sent.load(changes)
        for table in (landed, sent):
            table.merge(number, number)
    try:
        found, expected = (sorted(map(repr, table.rows())) for table in (landed, sent))
        assert found == expected
        assert len(found) == {"append": 7, "upsert": 5, "upsert_delete": 4, "delete": 6}[mode]
    finally:
        emulator.delete_table(sent.name)
        emulator.delete_table(sent.staging_table)


FIRST_DAYS = {
    "date": date(1, 1, 1),
    "timestamp": datetime(1, 1, 1, tzinfo=UTC),
    "timestamp_ntz": datetime(1, 1, 1),
}


@pytest.mark.parametrize("kind", FIRST_DAYS)
def test_filter_that_a_table_demands_leaves_no_row_out(kind: str, emulator: BigQuery, name: str) -> None:
    """0001-01-01 stands for no date at many sources, and a row that is not found would be inserted again."""
    options = {"mode": "upsert_delete", "time_partitioning": "DAY", "partition_column": "day"}
    table = Table(emulator, name, {"columns": {"id": "long", "name": "string", "day": kind}, "table": options})
    table.prepare()
    # Only now: the emulator does not see the filter in a MERGE, which BigQuery does.
    table.document = {**table.document, "table": {**options, "require_partition_filter": True}}
    first = FIRST_DAYS[kind]
    for number, name_ in enumerate(("a", "b"), start=1):
        table.load([put(1, name=name_, day=first), put(2, name=name_, day=None)])
        table.merge(number, number)
        text = f"SELECT id, name FROM `{table.name}` WHERE day IS NULL OR day IS NOT NULL ORDER BY id"
        assert [tuple(row) for row in emulator.read(text, {}, "test")] == [(1, name_), (2, name_)]
    table.load([delete(1), delete(2)])
    table.merge(3, 3)
    assert [tuple(row) for row in emulator.read(text, {}, "test")] == []


def test_null_in_an_array_is_dropped(emulator: BigQuery, name: str) -> None:
    options = {"mode": "append", "null_elements": "drop"}
    table = Table(emulator, name, {"columns": {"id": "long", "tags": "array<string>"}, "table": options})
    table.prepare()
    changes = [put(1, tags=["a", None, "b"]), put(2, tags=None), put(3, tags=[None]), put(4, tags=["c"])]
    table.load(changes)
    table.merge(1, 1)
    assert {row["id"]: row["tags"] for row in table.rows()} == {1: ["a", "b"], 2: [], 3: [], 4: ["c"]}


def _model(batches: Sequence[Sequence[Change]], mode: str) -> list[tuple[Any, str]]:
    """Independent of the product: applies change by change."""
    rows: list[tuple[Any, str]] = []
    for key, value in (change for batch in batches for change in batch):
        same = [r for r in rows if r[0] == key["id"]]
        if value is None:
            if mode in ("upsert_delete", "delete"):
                rows = [r for r in rows if r not in same]
            continue
        if mode in ("upsert", "upsert_delete"):
            rows = [r for r in rows if r not in same]
        rows.append((key["id"], value["name"]))
    return sorted(rows, key=str)


KEYS: dict[str, tuple[str, list[Any]]] = {
    "whole number": ("long", [1, 2, 3, 0]),
    "text": ("string", ["a", "", "`", "ä"]),
    "date": ("date", [date(2024, 1, d) for d in (1, 2, 3, 31)]),
    "decimal": ("decimal(10,2)", [Decimal("0.00"), Decimal("1.50"), Decimal("-1.50")]),
    "timestamp": ("timestamp", [datetime(2024, 1, 1, 0, 0, 0, n, UTC) for n in range(3)]),
    "struct": (
        "struct<a: long, b: struct<c: string>>",
        [{"a": n, "b": {"c": c}} for n in (1, 2) for c in ("x", "y")],
    ),
}


@pytest.mark.parametrize(
    ("mode", "kind", "nulls"),
    [
        ("append", "whole number", "refuse"),
        ("upsert", "whole number", "match"),
        *((mode, "whole number", nulls) for mode in ("upsert_delete", "delete") for nulls in ("refuse", "match")),
        # An append has no key, and an upsert is an upsert_delete without deletes.
        pytest.param("append", "whole number", "match", marks=pytest.mark.slow),
        pytest.param("upsert", "whole number", "refuse", marks=pytest.mark.slow),
        *(("upsert_delete", kind, "match") for kind in KEYS if kind != "whole number"),
        ("delete", "struct", "refuse"),
    ],
)
def test_keys_of_every_kind(mode: str, kind: str, nulls: str, emulator: BigQuery, name: str) -> None:
    """Random changes over three batches, the first merged alone, the others together, everything loaded twice."""
    type_, keys = KEYS[kind]
    keys = [*keys, None] if nulls == "match" and kind != "struct" else keys
    key = {"columns": ["id"], "nulls": nulls}
    document = {"columns": {"id": type_, "name": "string"}, "table": {"mode": mode}, "key": key}
    table = Table(emulator, name, document)
    table.prepare()
    dice = random.Random(f"{mode}{kind}{nulls}")
    batches = []
    for n in range(3):
        batch = []
        for m in range(12):
            key_value = dice.choice(keys)
            batch.append(delete(key_value) if dice.random() < 0.3 else put(key_value, name=f"{n}.{m}"))
        batches.append(batch)
        table.load(batch, times=2)
    table.merge(1, 1)
    table.merge(2, 3)
    found = sorted(((row["id"], row["name"]) for row in table.rows()), key=str)
    assert found == _model(batches, mode)


@pytest.mark.parametrize(
    ("mode", "kind", "keys"),
    [
        ("upsert", "date", [date(1969, 1, 1), date(2024, 1, 2), date(2024, 1, 9)]),
        ("upsert_delete", "timestamp", [datetime(y, 1, 1, 23, 59, 59, 999999, UTC) for y in (1969, 2024, 2025)]),
        ("delete", "timestamp_ntz", [datetime(y, 1, 1, 1, 2, 3) for y in (1969, 2024, 2025)]),
        ("upsert_delete", "string", ["", "a'b", "ä"]),
        ("delete", "long", [-(2**63), 0, 2**63 - 1]),
    ],
)
def test_bounds_of_the_key_change_nothing(mode: str, kind: str, keys: list[Any], emulator: BigQuery, name: str) -> None:
    partitioned = {"time_partitioning": "DAY", "partition_column": "id"}
    options = {"mode": mode, **(partitioned if "time" in kind or kind == "date" else {"cluster_by": ["id"]})}
    table = Table(emulator, name, {"columns": {"id": kind, "name": "string"}, "table": options})
    table.prepare()
    batches = [[put(keys[0], name="a"), put(keys[2], name="b")], [delete(keys[0]), put(keys[1], name="c")]]
    for batch in batches:
        table.load(batch)
        table.merge(table.batch, table.batch)
    assert sorted(((r["id"], r["name"]) for r in table.rows()), key=str) == _model(batches, mode)


def test_columns_are_added_and_relaxed(emulator: BigQuery, name: str) -> None:
    before = {"id": "long", "name": "string not null", "at": "struct<x: int>", "tags": "array<struct<k: string>>"}
    after = {
        "id": "long",
        "note": "string not null",
        "name": "string",
        "at": "struct<z: date, x: int>",
        "tags": "array<struct<k: string, n: long>>",
        "more": "struct<y: double>",
    }
    table = Table(emulator, name, {"columns": before, "table": {"mode": "upsert_delete"}})
    table.prepare()
    table.load([put(1, name="a", at={"x": 1}, tags=[{"k": "a"}]), put(2, name="b")])
    table.merge(1, 1)
    table.document = {**table.document, "columns": after}
    assert table.prepare() == [
        "add column note string",
        "make name optional",
        "add column at.z date",
        "add column tags.element.n long",
        "add column more struct<y: double>",
    ]
    assert table.prepare() == []
    value = {"note": "n", "at": {"z": date(2024, 1, 1), "x": 2}, "tags": [{"k": "b", "n": 7}], "more": {"y": 0.5}}
    table.load([put(2, **value)])
    table.merge(2, 2)
    first, second = sorted(table.rows(), key=lambda row: row["id"])
    assert first["at"]["x"] == 1
    assert first["name"] == "a"
    assert first["note"] is None
    assert {n: second[n] for n in value} == value
    assert second["name"] is None
    # Columns that are no longer declared stay, and get nulls.
    table.document = {**table.document, "columns": {"id": "long", "note": "string"}}
    assert table.prepare() == []
    table.load([put(3, note="later")])
    table.merge(3, 3)
    third = next(row for row in table.rows() if row["id"] == 3)
    assert third["note"] == "later"
    assert third["at"] is None or set(third["at"].values()) == {None}


def test_nested_field_that_only_the_table_has_is_null(emulator: BigQuery, name: str) -> None:
    struct = "STRUCT<title JSON, last STRING, more STRUCT<x JSON>, first STRING>"
    emulator.change(f"CREATE TABLE {name} (id INT64, op STRING, name {struct}, names ARRAY<{struct}>)", {}, "test")
    declared = "struct<first: string, last: string>"
    columns = {"id": "long", "name": declared, "names": f"array<{declared}>"}
    table = Table(emulator, name, {"columns": columns, "table": {"mode": "upsert_delete"}})
    table.prepare()
    person = {"first": "a", "last": "b"}
    table.load([put(1, name=person, names=[person, person]), put(2)])
    table.merge(1, 1)
    whole = {"title": None, "last": "b", "more": None, "first": "a"}
    first, second = table.rows()
    assert (first["name"], first["names"]) == (whole, [whole, whole])
    assert (second["name"], second["names"]) == (None, [])
