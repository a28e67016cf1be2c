"""The fast JSON decoder against the strict one: the same values and the same errors, whatever the records are."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.decode import json_fast, parts
from jobs.decode.base import Decoded
from jobs.decode.json_dialect import JsonDialect
from jobs.decode.json_fast import Json
from jobs.decode.json_strict import MAX_DEPTH, StrictJson
from jobs.decode.unknown import Watch
from tests.kit.arrow import row_type

FLAT = {"b": "boolean", "i": "int", "l": "long", "f": "float", "d": "double", "m": "decimal(5,2)", "s": "string"}
TIMES = {"x": "binary", "day": "date", "t": "timestamp", "n": "timestamp_ntz not null"}
NESTED = {
    "a": "array<struct<i: int not null, t: timestamp>>",
    "s": "struct<x: array<array<double not null>>, y: struct<z: string not null, m: decimal(38,10)> not null> not null",
    "t": "struct<t: date>",
    "l": "array<string not null>",
}
COLUMNS = [*FLAT.items(), *TIMES.items(), *NESTED.items()]
FITTED = JsonDialect("s", best_fit=True).of_row(row_type({**FLAT, **TIMES, "a": NESTED["a"]}))
SCHEMAS = [*(row_type(columns) for columns in (FLAT, TIMES, NESTED)), FITTED]


# Multiplied by a power of ten to the scale of a column, some wrap around to a number of up to 38 digits.
DECIMALS = [
    "120", "-42929165865", "1100000000000000000000", "1.1e21", "8710e+17", "9" * 38, "9999999699" + "9" * 29, "1e38",
    "0." + "0" * 18, "0." + "0" * 37 + "1", "0." + "0" * 40 + "1", "0." + "0" * 500 + "1",
    "0." + "0" * 19 + "1234567890" * 3 + "e-19", "1e-18", "1e-38", "1e-40", "1e-77", "1e-4009", "1E-99999999",
    "0e-99999999", "1e-2147483647", "1e99999999", "1e-0002",
]  # fmt: skip


NAMES_OF_SCHEMAS = ["flat", "times", "nested", "fitted"]


@pytest.fixture(params=SCHEMAS, ids=NAMES_OF_SCHEMAS)
def kind(request: pytest.FixtureRequest) -> pa.StructType:
    return request.param


@pytest.fixture
def by_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's reader even for a handful of records."""
    monkeypatch.setattr(json_fast, "_SMALL", 0)


def assert_same(kind: pa.DataType, records: Sequence[bytes | None]) -> None:
    raw = pa.array(records, pa.binary())
    fast, strict = Json(kind).decode(raw), StrictJson(kind).decode(raw)
    assert fast.errors == strict.errors
    assert fast.values.type == kind
    fast.values.validate(full=True)
    # By text: equality of arrays does not tell -0.0 from 0.0, and takes NaN for unequal to itself.
    assert [repr(value) for value in fast.values.to_pylist()] == [repr(value) for value in strict.values.to_pylist()]


def assert_each_same(kind: pa.DataType, records: Sequence[bytes | None]) -> None:
    """Also one by one: a bad record next to it sends a good one to the strict decoder."""
    assert_same(kind, records)
    for record in records:
        assert_same(kind, [record])


# JSON values, and what looks like them, one a line: what the two decoders might see differently.
NASTY = (Path(__file__).parent / "nasty_values.txt").read_text("utf-8").splitlines()
BESIDE = [
    "1.0", "1e3", "-0.0", "2147483648.0", "2147483647.0", "-2147483649.0", "9007199254740992.0", "9007199254740991.0",
    "9007199254740993", "9223372036854775807", "1e18", "1.5", "1700000000000.0", "1700000000000", "1e400", "null",
    "true", '"7"', '"7.0"', '"2026-01-01 10:00"', '"2026-01-01T10:00+02"', '"2026-01-01t10:00:00z"', '"2026-01-01"',
    "1.00000000000000000001", "1e-400", "1.123456789", "99999999999999999999", "9223372036854775807.0", '""',
    '"2026-02-30 10:00:00"', '"2026-01-01 24:00:00"', '"2026-01-01T10:00:00.1234567"', '"2026-01-01T10:00:00+0230"',
    '"2026-01-01T10:00:00.1234567891+01:00"', '"9999-12-31T23:59:59.9999999"', '"0000-01-01 00:00:00"',
    '"2026-01-01T10:00:00+25:00"', '"2026-01-01T10:00:00-14"', '"2026-01-01T10:00:00."', '"2026-01-01 10:00:00 "',
    '"25:00:00"', '[1,"a"]', '["a"]', '[[1],["a"]]', '{"a":1}',
]  # fmt: skip
SPACED = ['" "', '"a', '"\x01"', '"\n"', '"\x7f"', " 1 ", "\t1\r\n", "1 2", "'a'", "// c"]
SCALARS = st.one_of(
    st.sampled_from([*NASTY, *SPACED]),
    st.integers().map(str),
    st.sampled_from(
        [-719162, 2932896, 2932897, -62135596800000, -62135596800001, 253402300799999, 253402300800000]
    ).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
    st.decimals(-1000, 1000, places=2).map(str),
    st.text(max_size=5).map(json.dumps),
    st.integers().map(lambda number: f'"{number}"'),
    st.floats().map(lambda number: f'"{number}"'),
    st.from_regex(r'"[+-]?0{0,2}[0-9]{0,3}\.?[0-9]{0,3}([eE][+-]?[0-9]{1,3})?"', fullmatch=True),
    st.sampled_from(["true", "False", "TRUE", "inf", "nan", "1_0", "٣", "0x1", "1 ", "2024-02-29"]).map(json.dumps),
)
NAMES = st.sampled_from([*"bilfdmsxtnayz", "day", "zz", "", "\\u0069", "\\u0073", "i\\u0000", "#"])
SPACE = st.sampled_from(["", "", "", " ", "\n", "\r\n\t"])


def _object(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.builds('{1}"{0}"{1}:{1}{2}{1}'.format, NAMES, SPACE, values)
    return st.lists(member, max_size=6).map(lambda members: "{" + ",".join(members) + "}")


VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]") | _object(inner),
    max_leaves=8,
)


def _good(kind: pa.DataType) -> st.SearchStrategy[str]:
    """JSON text that mostly fits the type."""
    if pa.types.is_struct(kind):
        present = st.tuples(*[st.one_of(*[_good(f.type)] * 9, st.none()) for f in kind])
        return present.map(
            lambda values: "{" + ",".join(f'"{f.name}":{v}' for f, v in zip(kind, values, strict=True) if v) + "}"
        )
    if pa.types.is_list(kind):
        return st.lists(_good(kind.value_type), max_size=3).map(lambda items: "[" + ",".join(items) + "]")
    return {
        pa.bool_(): st.sampled_from(["true", "false", "null"]),
        pa.int32(): st.integers(-5, 5).map(str),
        pa.int64(): st.integers(-(2**63), 2**63 - 1).map(str),
        pa.float32(): st.floats(width=32, allow_nan=False, allow_infinity=False).map(json.dumps),
        pa.float64(): st.floats(allow_nan=False, allow_infinity=False).map(json.dumps) | st.integers().map(str),
        pa.string(): st.text(max_size=5).map(json.dumps),
        pa.binary(): st.sampled_from(['"AP8="', '""', '"AAAA"']),
        pa.date32(): st.dates().map(lambda day: f'"{day}"') | st.integers(-9, 9).map(str),
        pa.timestamp("us", "UTC"): st.datetimes().map(lambda at: f'"{at.isoformat()}Z"') | st.integers(-9, 9).map(str),
        pa.timestamp("us"): st.datetimes().map(lambda at: f'"{at.isoformat()}"'),
    }.get(kind, st.decimals(-900, 900, places=2).map(str) | st.decimals(-900, 900, places=2).map(lambda d: f'"{d}"'))


FRAGMENTS = st.sampled_from(
    [
        '{"a":[',
        '{"zz":[{}',
        '{"zz":[{},{}',
        '{"zz":1,"i":{"q":{}',
        '{"x":1}]}',
        '{"i":1}]}',
        "{}{}",
        "{}",
        "{ }",
        "[]",
        "",
        " ",
        "}",
        "{",
        '{"s":"',
        '"}',
        "null",
        '{"i":1},{"i":2}',
        '{"i":1}{"i":2}',
        '{"i":1}\n{"i":2}',
        '"i":1}',
        ',"i":1}',
        '{,"i":1}',
        '{"i":1,}',
        '{"i":1}x',
        '{"zz":NaN}',
        '{"zz":-Infinity}',
        '{"zz":Inf}',
        '{"zz": \t-NaN}',
        '{"zz":[1,\n Infinity]}',
        '{"zz":[\rNaN]}',
        '{"zz":{"i":Inf}}',
        '{"i":1}\u0000',
        '{"i":1\u0000}',
        '\ufeff{"i":1}',
        ' {"i":1}\n',
        '{"i":1}\f',
        '{"zz":1e999}',
        '{"zz":"\\ud800"}',
        '{"i":1,"i":2}',
        '{"i":null,"i":2}',
        '{"i":"a","i":2}',
        '{"zz":1,"zz":NaN}',
        '{"i":/**/1}',
    ]
)


def _records(kind: pa.StructType) -> st.SearchStrategy[list[bytes | None]]:
    good = _good(kind)
    nasty = st.one_of(good, good, _object(VALUES), VALUES, FRAGMENTS)
    text = nasty.map(lambda t: t.encode("utf-8", "surrogatepass"))
    cut = st.builds(lambda record, at: record[: at % (len(record) + 1)], text, st.integers(0, 60))
    swapped = st.builds(
        lambda record, at, byte: (
            record[: at % (len(record) + 1)] + bytes([byte]) + record[at % (len(record) + 1) + 1 :]
        ),
        text,
        st.integers(0, 60),
        st.integers(0, 255),
    )
    record = st.one_of(text, text, text, cut, swapped, st.none())
    return st.lists(record, max_size=12) | st.lists(good.map(str.encode), min_size=1, max_size=12)


@pytest.mark.usefixtures("by_arrow")
class TestSameAsStrict:
    @pytest.mark.parametrize("kind", SCHEMAS, ids=NAMES_OF_SCHEMAS)
    @settings(max_examples=30, deadline=None)
    @given(data=st.data())
    def test_any_records(self, kind: pa.StructType, data: st.DataObject) -> None:
        assert_each_same(kind, data.draw(_records(kind)))

    @settings(max_examples=150, deadline=None)
    @given(st.sampled_from(COLUMNS), st.lists(SCALARS, min_size=1, max_size=4), st.booleans())
    @example(("f", "float"), ["16777217.0000000001", "3.4028235677973366e38", "3.4028235677973362e38"], False)
    @example(("d", "double"), ["2.4703282292062328e-324", "2.4703282292062327e-324", "1.7976931348623159e308"], False)
    @example(("m", "decimal(5,2)"), ["999", "1000", '"00000000999"', "0.000", "1e-2", "1e-3", "-0"], False)
    @example(("f", "float"), ['"16777217.0000000001"', '"3.4028235677973366e38"', '"1e39"', '"-0.0"'], True)
    @example(("l", "long"), ['"-0"', '"007"', '"+7"', '"7."', '"7.0"', '"9223372036854775808"', '"1e3"'], True)
    def test_one_column(self, column: tuple[str, str], values: list[str], best_fit: bool) -> None:
        kind = JsonDialect(best_fit=best_fit).of_row(row_type(dict([column])))
        assert_each_same(kind, [f'{{"{column[0]}":{value}}}'.encode("utf-8", "surrogatepass") for value in values])

    @pytest.mark.parametrize("best_fit", [False, True], ids=["exact", "best_fit"])
    @pytest.mark.parametrize("column", COLUMNS, ids="-".join)
    def test_every_nasty_value_alone(self, column: tuple[str, str], best_fit: bool) -> None:
        kind = JsonDialect(best_fit=best_fit).of_row(row_type(dict([column])))
        for value in [*NASTY, *SPACED]:
            for record in (f'{{"{column[0]}":{value}}}', f'{{"{column[0]}":null,"zz":{value}}}', f'{{"zz":{value}}}'):
                assert_same(kind, [record.encode()])

    @pytest.mark.parametrize(
        "usual", ["1", "1.0", '"7"', '"2026-01-01 10:00:00"', '"2026-01-01T10:00:00Z"', '"10:00:00"']
    )
    @pytest.mark.parametrize("best_fit", [False, True], ids=["exact", "best_fit"])
    def test_values_beside_usual_ones(self, usual: str, best_fit: bool) -> None:
        """Records whose values are written in another way are read in a group of their own."""
        for name, column in COLUMNS:
            kind = JsonDialect(best_fit=best_fit).of_row(row_type({name: column}))
            for other in BESIDE:
                values = [usual, other, usual, other, other]
                records = [f'{{"{name}":{value},"zz":{other if n else usual}}}' for n, value in enumerate(values)]
                assert_same(kind, [record.encode() for record in records])

    @pytest.mark.parametrize("column", ["decimal(5,2)", "decimal(38,0)", "decimal(38,18)", "decimal(38,38)"])
    def test_decimals_that_arrow_reads_as_other_numbers_or_not_at_all(self, column: str) -> None:
        """Some of them end the process in Arrow's reader."""
        for value in DECIMALS:
            assert_same(row_type({"m": column}), [f'{{"m":{value}}}'.encode(), f'{{"m":"{value}"}}'.encode()])
            assert_same(row_type({"m": column}), [f'{{"m":{value}}}'.encode()])
        escaped = [
            f'{{"m":"{text}"}}'.encode() for text in ("1\\u0065-99999999", "1e\\u002D99999999", "1e-9\\u00399999")
        ]
        for record in escaped:
            assert_same(row_type({"m": column}), [record])

    @pytest.mark.parametrize("broken", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"])
    def test_broken_utf8(self, broken: bytes) -> None:
        records = [b'{"s":"' + broken + b'"}', b'{"zz":"' + broken + b'"}', b'{"s":"a","' + broken + b'":1}']
        assert_each_same(SCHEMAS[0], [*records, b'{"s":"good"}'])

    @given(st.lists(FRAGMENTS.map(str.encode), max_size=6))
    @example([b'{"a":[', b'{"x":1}]}', b"{}{}"])
    @example([b'{"zz":[1', b',{"x":1}]}', b'{"i":1}{"i":2}'])
    @example([b'{"zz":[{}', b'{"x":1}]}', b'{"i":1}{"i":2}'])
    @example([b'{"s":"}', b'{"}', b'{"i":1}{"i":2}'])
    @example([b'{"i":1}{"i":2}', b" "])
    @example([b'{"i":1}{"i":2}', b"{}", b"{ }"])
    def test_record_boundaries(self, records: list[bytes]) -> None:
        assert_each_same(SCHEMAS[0], records)


def _mixture(kind: pa.StructType, count: int, share: float, seed: int) -> list[bytes | None]:
    """Many records of one kind with a share of all sorts of bad ones."""
    generator = random.Random(seed)
    good = b'{"i":%d,"s":"%d","d":1.25,"m":"1.5","t":"2013-01-01T05:00:00Z","n":"2013-01-01T05:00:00"}'
    if kind is SCHEMAS[2]:
        good = b'{"a":[{"i":%d}],"s":{"y":{"z":"%d","m":1.5}},"t":{"t":"2013-01-01"},"l":["q"]}'
    bad = [b'{"i":"x"}', b'{"i":1.0}', b'{"i":1.5}', b'{"n":null}', b"{", b"", None, b'{"s":7}', b'{"s":{"y":null}}']
    bad += [
        b'{"m":1.234}',
        b'{"t":"2013-01-01"}',
        b'{"i":1,"i":2}',
        b'{"zz":NaN}',
        b"\xff",
        b'{"l":[null]}',
        b'{"s":"}',
    ]
    return [generator.choice(bad) if generator.random() < share else good % (n, n) for n in range(count)]


@pytest.mark.parametrize("share", [0, 0.001, 0.01, 0.5, 1])
def test_large_batches_in_order(kind: pa.StructType, share: float) -> None:
    assert_same(kind, _mixture(kind, 5_000, share, seed=1))


@pytest.mark.parametrize(
    "bad",
    [
        b'{"i":"x"}',
        b'{"i":1.5}',
        b'{"n":null}',
        b'{"m":1.234}',
        b'{"t":"2013-01-01"}',
        b"\xff",
        b'{"i":1,"i":2}',
        b'{"i":1',
    ],
)
def test_one_bad_record_of_many_costs_no_other(bad: bytes) -> None:
    records = _mixture(SCHEMAS[0], 3_000, 0, seed=1)
    records[1234] = bad
    assert_same(SCHEMAS[0], records)
    assert_same(SCHEMAS[1], records)


def test_more_records_than_one_buffer_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_ROWS", 700)
    monkeypatch.setattr(parts, "_BYTES", 20_000)
    records = _mixture(SCHEMAS[0], 5_000, 0.01, seed=2)
    records[77] = b'{"s":"' + b"a" * 50_000 + b'"}'
    assert_same(SCHEMAS[0], records)


def test_slices_and_large_binary(kind: pa.StructType) -> None:
    raw = pa.array(_mixture(kind, 500, 0.02, seed=3), pa.binary())
    whole = Json(kind).decode(raw)
    part = Json(kind).decode(raw[100:400])
    assert part.values.equals(whole.values[100:400])
    assert part.errors == {at - 100: error for at, error in whole.errors.items() if 100 <= at < 400}
    assert Json(kind).decode(raw.cast(pa.large_binary())).values.equals(whole.values)


@pytest.mark.parametrize("depth", [MAX_DEPTH - 2, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 100_000])
@pytest.mark.usefixtures("by_arrow")
def test_depth(depth: int) -> None:
    deep = b'{"i":1,"zz":' + b"[" * depth + b"]" * depth + b"}"
    assert_same(SCHEMAS[0], [deep, b'{"i":2,"s":"' + b"[" * depth + b'"}'])


def test_all_of_a_common_batch_is_read_by_arrow(monkeypatch: pytest.MonkeyPatch, kind: pa.StructType) -> None:
    """Without this the tests above would also pass if everything fell back."""
    records = _mixture(kind, 1_000, 0, seed=4)
    if kind is SCHEMAS[0]:
        records = [
            record and record.replace(b'"m":"1.5"', b'"m":1.5,"f":-0,"l":9223372036854775807') for record in records
        ]
    monkeypatch.setattr(StrictJson, "decode", never)
    decoded = Json(kind).decode(pa.array(records, pa.binary()))
    assert not decoded.errors
    assert not decoded.values.null_count


def never(_self: StrictJson, raw: pa.Array) -> Any:
    raise AssertionError(f"{len(raw)} records fell back")


TEXTS = ["2026-01-01 10:00:00", "2026-01-01T10:00:00.5", "2026-01-01T10:00:00Z", "2026-01-01T10:00:00.123456789+02:00"]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("timestamp", [json.dumps(text) for text in TEXTS]),
        ("timestamp", ['"2026-01-01 10:00:00"', "1700000000000", '"2026-01-01T10:00:00Z"']),
        ("long", ["1.0", "2", "3e2"]),
        ("struct<a: int>", ['{"a":1.0}', '{"a":2,"c":"x"}', '{"a":3,"c":3}']),
        ("array<long>", ["[1.0]", "[2]"]),
    ],
)
def test_values_that_are_written_in_several_ways_are_read_by_arrow(
    monkeypatch: pytest.MonkeyPatch, column: str, values: list[str]
) -> None:
    """Before, any of them made the batch ten times slower."""
    kind = row_type({"v": column})
    raw = pa.array([f'{{"v":{values[n % len(values)]}}}'.encode() for n in range(600)], pa.binary())
    strict = StrictJson(kind).decode(raw)
    monkeypatch.setattr(StrictJson, "decode", never)
    assert Json(kind, Watch("report")).decode(raw).values.to_pylist() == strict.values.to_pylist()


@pytest.mark.parametrize("values", [["1", '"x"'], ['{"a":1}', '"x"', "2"], ["[1]", '["x"]', "true", "[[2]]"]])
def test_other_fields_of_several_types_are_reported_by_arrow(
    monkeypatch: pytest.MonkeyPatch, values: list[str]
) -> None:
    kind = row_type({"i": "int"})
    raw = pa.array([f'{{"i":{n},"zz":{values[n % len(values)]}}}'.encode() for n in range(600)], pa.binary())
    strict = StrictJson(kind, watch=Watch("report")).decode(raw)
    monkeypatch.setattr(StrictJson, "decode", never)
    found = Json(kind, Watch("report")).decode(raw)
    assert found.values.to_pylist() == strict.values.to_pylist()
    assert found.unknown == strict.unknown


ONES = {"i": "int", "l": "long", "d": "double", "s": "string", "t": "timestamp", "n": "timestamp_ntz", "b": "boolean"}
MANY = {"st": "struct<a: long>", "ar": "array<long>", "as": "array<struct<a: long>>", "x": "text", "m": "decimal(9,2)"}


@pytest.mark.usefixtures("by_arrow")
@pytest.mark.parametrize("then", [None, "report", "refuse"])
def test_columns_and_other_fields_that_are_written_in_several_ways(then: Literal["report", "refuse"] | None) -> None:
    dice, watch = random.Random(f"{then}"), Watch(then) if then else None
    for _ in range(100):
        names = dice.sample([*ONES, *MANY], 3)
        written = {name: dice.sample(BESIDE, dice.randint(1, 4)) for name in [*names, "zz", "yy"]}
        records = list[bytes]()
        for _ in range(30):
            fields = [f'"{name}":{dice.choice(ways)}' for name, ways in written.items() if dice.random() < 0.9]
            records.append(f"{{{','.join(dice.sample(fields, len(fields)))}}}".encode())
        kind, raw = row_type({name: {**ONES, **MANY}[name] for name in names}), pa.array(records, pa.binary())
        fast, strict = Json(kind, watch).decode(raw), StrictJson(kind, watch=watch).decode(raw)
        assert fast.errors == strict.errors
        assert [repr(value) for value in fast.values.to_pylist()] == [
            repr(value) for value in strict.values.to_pylist()
        ]
        assert fast.unknown == strict.unknown


@pytest.mark.parametrize(
    "column", ["array<decimal(9,2)>", "array<array<decimal(9,2)>>", "array<struct<a: decimal(9,2)>>"]
)
def test_decimals_in_base64_are_not_taken_for_the_numbers_that_they_look_like(column: str) -> None:
    """No sample has a text: the types to read with were decimals, which Arrow reads from texts, too."""
    kind = JsonDialect(decimals="base64").of_row(row_type({"m": column}))
    inner = {"array<decimal(9,2)>": "1000", "array<array<decimal(9,2)>>": ["1000"]}.get(column, {"a": "1000"})
    records = [json.dumps({"m": [inner] if n in (50, 90) else []}).encode() for n in range(100)]
    assert_same(kind, [*records])


def test_some_values_that_do_not_fit_cost_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded, texts = StrictJson.decode, ["2026-01-01 10:00:00"] * 49 + ["none"]
    sizes = list[int]()

    def counted(self: StrictJson, raw: pa.Array) -> Decoded:
        sizes.append(len(raw))
        return decoded(self, raw)

    monkeypatch.setattr(StrictJson, "decode", counted)
    raw = pa.array([json.dumps({"t": texts[n % 50]}).encode() for n in range(1000)])
    found = Json(row_type({"t": "timestamp"})).decode(raw)
    assert sizes == [20]
    assert sorted(found.errors) == list(range(49, 1000, 50))


def test_texts_that_look_like_numbers_of_other_readers_are_read_by_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """One record of three one by one made the whole batch four times slower."""
    texts = ["Information", "a NaN", "-Infinity", "Infra Inf", "Nan NaN NaN", "x"] * 20
    raw = pa.array([json.dumps({"i": n, "s": text, "zz": text}).encode() for n, text in enumerate(texts)])
    monkeypatch.setattr(StrictJson, "decode", never)
    assert Json(SCHEMAS[0]).decode(raw).values.field("s").to_pylist() == texts


def test_maps_and_scalars_are_decoded_too() -> None:
    mapped = row_type({"m": "map<string,array<int>>"})
    assert_same(mapped, [b'{"m":{"a":[1]}}', b'{"m":[]}', None])
    assert_same(pa.int64(), [b"1", b" 2 ", b'"3"', None, b"null"])
