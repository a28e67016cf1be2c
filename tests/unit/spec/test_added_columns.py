"""Columns that records bring: made by the rules for declared ones, and found again in the landed table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from jobs.changes.columns import landing_schema
from jobs.decode.base import Decoded
from jobs.destinations.bigquery.field import Field
from jobs.destinations.bigquery.schema import taken as bigquery_taken
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.clickhouse.present_types import column_takes as clickhouse_taken
from jobs.destinations.takes import Takes, Taking, of_schema
from jobs.landing.column_forms import forms_property, with_forms
from jobs.landing.readers import record_reader
from jobs.landing.required_columns import required_property, with_required
from jobs.schema.found_fields import FoundField, FoundFields, Path
from jobs.schema.types import MAX_DEPTH, inside, own_type, parse_columns, parse_type, type_name, with_inside
from jobs.spec.added_columns import additions, undeclared_counts, widening_columns
from jobs.spec.changes import Key
from jobs.spec.columns import key_fields
from jobs.spec.landed_columns import with_landed_columns
from jobs.spec.open_key import key_found, key_is_open
from jobs.spec.pipeline import PipelineSpec
from resources.config_files.mistakes import Mistakes
from resources.errors import ConfigurationError
from tests.kit import specs
from tests.kit.arrow import copied, raw_values
from tests.kit.batches import batch

BIGQUERY = specs.table("bigquery", metadata_columns=["offset"])
COLUMNS = {"id": "long not null", "s": "struct<x: long>", "l": "array<struct<x: long>>", "m": "map<string,long>"}


def spec(tables: tuple[dict[str, Any], ...] = (BIGQUERY,), **value: object) -> PipelineSpec:
    return specs.spec(*tables, columns=COLUMNS, value={"unknown_fields": "add", **value})


def found(**fields: str | None) -> FoundFields:
    """`s__y` is the field y in s."""
    by_path: dict[Path, FoundField] = {}
    for name, text in fields.items():
        kind = parse_type(text)[0] if text else None
        by_path[tuple(name.split("__"))] = FoundField(kind, 1)
    return FoundFields(by_path)


def test_fields_become_optional_columns_whose_text_takes_any_value() -> None:
    made = additions(spec(), found(n="long", s__y="string", l__element__z="struct<a: string, b: double>"))
    assert made.spec.source.value.columns == {
        "id": "long not null",
        "s": "struct<x: long, y: text>",
        "l": "array<struct<x: long, z: struct<a: text, b: double>>>",
        "m": "map<string,long>",
        "n": "long",
    }
    assert made.descriptions == made.added == {"n": "long", "s.y": "text", "l.element.z": "struct<a: text, b: double>"}
    assert not made.refused


def test_columns_that_become_wider_are_reported_with_what_they_were() -> None:
    there = {"id": "long not null", "n": "int", "s": "struct<x: int>"}
    assert additions(spec(columns=there), found(n="long", s__x="long", new="long")).descriptions == {
        "n": "int to long", "s.x": "int to long", "new": "long",
    }  # fmt: skip


def test_nested_fields_are_text_where_a_system_has_no_null_for_them() -> None:
    made = additions(
        spec((BIGQUERY, specs.table("clickhouse"))), found(o="struct<a: long>", s__n="array<long>", s__y="long")
    )
    assert made.added == {"o": "text", "s.n": "text", "s.y": "long"}


def test_landed_table_gives_the_same_columns_to_whoever_opens_the_pipeline() -> None:
    made = additions(spec(), found(n="string", s__y="string", l__element__z="struct<a: string>")).spec
    assert with_landed_columns(spec(), landing_schema(made)) == made
    assert with_landed_columns(made, landing_schema(made)) is made
    assert with_landed_columns(spec(), None) == spec()
    ignoring = spec(unknown_fields="ignore")
    assert with_landed_columns(ignoring, landing_schema(made)) is ignoring


def test_declared_types_stay_whatever_the_landed_table_has() -> None:
    landed = pa.schema([pa.field("value", pa.struct([("id", pa.string()), ("s", pa.int64()), ("gone", pa.date32())]))])
    columns = with_landed_columns(spec(), landed).source.value.columns
    assert (columns["id"], columns["s"], columns["gone"]) == ("long not null", "struct<x: long>", "date")


@pytest.mark.parametrize(
    ("field", "kind", "reason"),
    [
        ("ID", "long", "differ in upper and lower case"),
        ("_offset", "long", "is a column of the value already"),
        ("__rank", "long", "the merge uses itself"),
        ("", "long", "a field without a name"),
    ],
)
def test_field_that_can_be_no_column_says_why_and_others_are_added(field: str, kind: str, reason: str) -> None:
    by_path = {**found(n="long").by_path, (field,): FoundField(parse_type(kind)[0], 1)}
    made = additions(spec(), FoundFields(by_path))
    assert reason in made.refused[field]
    assert made.added == {"n": "long"}


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        ([("s", "X")], "s.x and s.X differ in upper and lower case only"),
        ([("l", "element", "X")], "l.element.x and l.element.X differ in upper and lower case only"),
        ([("s.x",)], "s.x is the name of a field and the path of another"),
        ([("S.X",)], "s.x and S.X differ in upper and lower case only"),
        ([("l.x",)], "l.x is the name of a field and the path of another"),
        (
            [("l.element",), ("l.element.x",), ("m.key",), ("m.value",)],
            "is the name of a field and the path of another",
        ),
    ],
)
def test_nested_field_that_has_the_name_of_another_is_refused(paths: list[Path], reason: str) -> None:
    made = additions(spec(), FoundFields({path: FoundField(pa.int64(), 1) for path in [*paths, ("s", "y")]}))
    assert made.added == {"s.y": "long"}
    assert list(made.refused) == [".".join(path) for path in paths]
    assert all(reason in why for why in made.refused.values())


@pytest.mark.parametrize(
    ("column", "path"),
    [
        ("array<struct<element: long, x: long>>", ("c", "element", "X")),
        ("array<struct<element: long, x: long>>", ("c.x",)),
        ("array<struct<element: struct<x: long>>>", ("c", "element", "x")),
        ("map<string, struct<value: long, x: long>>", ("c", "value", "X")),
        ("map<string, struct<value: long, key: long, x: long>>", ("c.x",)),
        ("map<string, struct<x: long>>", ("c", "value", "Value")),
        ("map<string, struct<x: long>>", ("c", "value", "KEY")),
    ],
)
def test_names_that_arrays_and_maps_have_for_their_parts_hide_no_others(column: str, path: Path) -> None:
    opened = spec((specs.table("iceberg"),), columns={"id": "long", "c": column})
    made = additions(opened, FoundFields({path: FoundField(pa.int64(), 1)}))
    assert ([*made.added], [*made.refused]) == ([], [".".join(path)])


@pytest.mark.parametrize("around", ["{}", "array<struct<in: {}>>"])
@pytest.mark.parametrize(
    ("column", "step", "name"),
    [
        ("array<struct<x: long>>", "element", "element"),
        ("map<string, struct<x: long>>", "value", "key"),
        ("map<string, struct<x: long>>", "value", "value"),
    ],
)
def test_fields_in_arrays_and_maps_may_have_the_names_of_their_parts(
    around: str, column: str, step: str, name: str
) -> None:
    """Iceberg takes such a name for the part's, and the field has its path beside it."""
    iceberg = (specs.table("iceberg"),)
    path = ("c", *(("element", "in") if "in:" in around else ()), step, name)
    opened = spec(iceberg, columns={"id": "long", "c": around.format(column)})
    made = additions(opened, FoundFields({path: FoundField(pa.int64(), 1)}))
    assert (made.added, made.refused) == ({".".join(path): "long"}, {})
    nested = column.replace("x: long", f"x: long, {name}: struct<{name}: array<struct<{name}: long>>>")
    declared = {"id": "long", "c": around.format(nested)}
    assert spec(iceberg, columns=declared).source.value.columns == declared


def test_new_struct_whose_fields_have_one_name_is_text() -> None:
    assert additions(spec(), found(o="struct<a: long, A: long>")).added == {"o": "text"}
    both = FoundFields({("o",): FoundField(parse_type("struct<a: long>")[0], 1), ("o.a",): FoundField(pa.int64(), 1)})
    made = additions(spec(), both)
    assert (made.added, list(made.refused)) == ({"o": "struct<a: long>"}, ["o.a"])


@pytest.mark.parametrize("kind", ["iceberg", "bigquery", "clickhouse"])
def test_field_of_a_type_that_a_table_cannot_have_is_text(kind: str) -> None:
    wild = found(tree=None, geo="array<array<double>>", s__deep="struct<points: array<array<long>>>", n="long")
    made = additions(spec((specs.table(kind),)), wild)
    nested = {"geo": "array<array<double>>", "s.deep": "struct<points: array<array<long>>>"}
    text = {"geo": "text", "s.deep": "text"}
    assert (made.added, made.refused) == ({**(nested if kind == "iceberg" else text), "n": "long", "tree": "text"}, {})
    opened = with_landed_columns(spec((specs.table(kind),)), landing_schema(made.spec))
    assert opened.source.value.columns == made.spec.source.value.columns


def test_field_that_is_nested_too_deep_is_text() -> None:
    def deep(levels: int) -> pa.DataType:
        return pa.struct([("a", deep(levels - 1))]) if levels else pa.int64()

    by_path: dict[Path, FoundField] = {**found(n="long").by_path}
    by_path |= {("fits",): FoundField(deep(MAX_DEPTH), 1), ("deeper",): FoundField(deep(MAX_DEPTH + 1), 1)}
    made = additions(spec((specs.table("iceberg"),)), FoundFields(by_path))
    assert (made.added, made.refused) == ({"fits": type_name(deep(MAX_DEPTH)), "deeper": "text", "n": "long"}, {})


def test_a_batch_adds_at_most_500_columns() -> None:
    made = additions(spec(), found(**{f"f{n:03}": "long" for n in range(503)}))
    assert (len(made.added), len(made.refused)) == (500, 3)


def test_columns_that_records_brought_become_wider_and_declared_ones_do_not() -> None:
    first = additions(spec(), found(n="int", d="decimal(10,2)")).spec
    opened = with_landed_columns(spec(), landing_schema(first))
    assert widening_columns(opened) == {("n",), ("d",)}
    wider = additions(opened, found(n="long", d="decimal(14,2)")).spec
    types = wider.source.value.columns
    assert (types["n"], types["d"]) == ("long", "decimal(14,2)")
    assert list(types) == list(opened.source.value.columns)
    held = spec(({**BIGQUERY, "evolve": {"widen_types": False}},))
    assert widening_columns(additions(held, found(n="int")).spec) == set()


def test_parts_of_what_records_brought_become_wider_too() -> None:
    first = additions(spec(), found(o="struct<n: int>", a="array<int>", p="map<string,int>", s__y="int")).spec
    opened = with_landed_columns(spec(), landing_schema(first))
    brought = {("o",), ("o", "n"), ("a",), ("a", "element"), ("p",), ("p", "value"), ("s", "y")}
    assert widening_columns(opened) == brought, "s.x is declared"
    wider = found(o__n="long", a__element="long", p__value="long", s__y="long")
    types = additions(opened, wider).spec.source.value.columns
    assert (types["o"], types["a"], types["p"]) == ("struct<n: long>", "array<long>", "map<string,long>")
    assert types["s"] == "struct<x: long, y: long>"


def test_fields_count_until_they_are_declared() -> None:
    counts = [{"s.y": 2, "l.element.z": 1, "s.x": 9}, {"s.y": 3}]
    assert undeclared_counts(spec(), counts) == {"s.y": 5, "l.element.z": 1}
    later = additions(spec(), found(s__y="long")).spec
    assert undeclared_counts(later, counts) == {"l.element.z": 1}


@pytest.mark.parametrize(
    ("value", "table", "text"),
    [
        ({"format": "string", "columns": {"line": "string"}}, {}, "no fields"),
        ({"unknown_fields": "rescue", "columns": {"id": "long", "_rescued": "long"}}, {}, "what is rescued"),
        ({}, {"evolve": {"add_columns": False}}, "adds columns"),
    ],
)
def test_policy_that_cannot_hold_is_a_mistake(value: dict[str, Any], table: dict[str, Any], text: str) -> None:
    with pytest.raises((Mistakes, ValueError), match=text):
        spec(({**BIGQUERY, **table},), **value)


def test_rescued_fields_have_a_column() -> None:
    rescuing = spec(unknown_fields="rescue", rescued="more")
    assert rescuing.source.value.columns["more"] == "string"


@pytest.mark.parametrize(
    ("value", "declared"),
    [
        ({}, {}),
        ({"columns": "auto"}, {}),
        ({"columns": "auto", "format": "avro", "registry": "r"}, {}),
        ({"envelope": "debezium"}, {"_op": "string"}),
        (
            {"envelope": {"kind": "debezium", "metadata": {"_lsn": "source.lsn"}}, "columns": {"_lsn": "long"}},
            {"_lsn": "long", "_op": "string"},
        ),
    ],
)
def test_columns_may_be_left_to_the_records(value: dict[str, Any], declared: dict[str, str]) -> None:
    opened = specs.spec(specs.table("bigquery"), source={"value": value})
    assert (opened.source.value.columns, opened.source.value.unknown_fields) == (declared, "add")
    landed = landing_schema(opened)
    assert landed.field("value").type.num_fields == max(len(declared), 1), "there are no empty structs in tables"
    assert with_landed_columns(opened, landed).source.value.columns == declared
    made = additions(opened, found(id="long")).spec
    assert with_landed_columns(opened, landing_schema(made)).source.value.columns == {**declared, "id": "long"}


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"value": {"unknown_fields": "fail"}}, "lets records bring none"),
        ({"value": {"columns": "auto", "unknown_fields": "rescue"}}, "write `unknown_fields: add`"),
        ({"value": {"columns": {"a": "struct<b: long>"}, "exclude": ["a.b"]}}, "a.b is declared"),
        ({"value": {"format": "string"}}, "there are no columns"),
        ({"value": {}, "transform": "select _offset as a from records"}, "no `\\*` through which"),
    ],
)
def test_columns_that_cannot_be_left_out_are_a_mistake(parts: dict[str, Any], text: str) -> None:
    with pytest.raises((Mistakes, ValueError), match=text):
        specs.spec(BIGQUERY, source=parts)


def test_what_the_file_names_needs_a_type() -> None:
    with pytest.raises((Mistakes, ValueError), match="declare it there"):
        specs.spec(specs.table("bigquery", "upsert"), key="id", source={"value": {}})


def keyed(*tables: dict[str, Any], **parts: Any) -> PipelineSpec:
    """A pipeline that leaves the key to the records."""
    source = {"key": {"format": "json"}, **parts.pop("source", {})}
    made = tables or [specs.table(mode="upsert_delete")]
    return specs.spec(*made, columns={"id": "long", "n": "string"}, source=source, **parts)


def test_key_of_the_records_is_the_key_of_the_tables() -> None:
    made = key_found(keyed(), found(line="int", id="long"))
    assert key_is_open(keyed())
    assert not key_is_open(made)
    assert made.source.key
    assert made.source.key.columns == {"line": "long", "id": "long"}, "the source may widen it"
    assert made.changes.key == Key(columns=["line", "id"])
    # Whoever opens the pipeline later sees the same, and so would a file that declares it.
    assert with_landed_columns(keyed(), landing_schema(made)) == made
    columns = {"line": "int", "id": "long"}
    declared = keyed(changes={"key": {"columns": [*columns]}}, source={"key": {"columns": columns}})
    assert declared.meaning_hash == made.meaning_hash


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "the keys of records have no fields"),
        ({"id": "double"}, "id is double, which cannot identify a row"),
        ({"id": None}, "no column can have id"),
    ],
)
def test_keys_that_can_be_none_of_a_table(fields: dict[str, str | None], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        key_found(keyed(), found(**fields))


def test_record_whose_key_has_other_fields_is_bad() -> None:
    made = key_found(keyed(), found(id="long"))
    reader = record_reader(made, batch(1), landing_schema(made))
    assert reader.key_decoder
    decoded = reader.key_decoder.usual.decode(raw_values({"id": 1}, {"id": 1, "line": 2}))
    assert decoded.values.to_pylist()[0] == {"id": 1}
    assert decoded.errors[1].message == "no column takes the field line"


def test_transform_needs_to_know_the_key() -> None:
    with pytest.raises(ValidationError, match="a transform needs to know the key's columns"):
        keyed(source={"transform": "select id from records"})


def test_whole_key_in_one_column() -> None:
    """As the BigQuery sinks write it (`kafkaKeyFieldName`)."""
    table, source = specs.table("bigquery", "upsert_delete"), {"key": {"format": "json", "column": "kafkaKey"}}
    made = key_found(keyed(table, source=source), found(id="long"))
    assert made.changes.key == Key(columns=["kafkaKey"])
    declared = {"key": {"format": "json", "column": "kafkaKey", "columns": {"id": "long"}}}
    changes = {"key": {"columns": ["kafkaKey"]}}
    assert key_fields(keyed(table, source=declared, changes=changes)) == key_fields(made)
    assert with_landed_columns(keyed(table, source=source), landing_schema(made)) == made
    reader = record_reader(made, batch(1), landing_schema(made))
    assert reader.key_decoder
    decoded = reader.key_decoder.usual.decode(raw_values({"id": 1}, None, {"id": 1, "x": 2}))
    assert decoded.values.to_pylist()[:2] == [{"kafkaKey": {"id": 1}}, None]
    assert decoded.errors.keys() == {2}


def of(tables: Mapping[str, Mapping[str, Takes]]) -> Taking:
    return lambda _: tables


def there(**columns: str) -> Mapping[str, Takes]:
    return of_schema(pa.schema([f.with_type(own_type(f)) for f in parse_columns(columns)]), columns)


def without_marks(schema: pa.Schema) -> pa.Schema:
    """As the intermediate table gives it back."""
    return pa.schema([(f.name, _bare(f.type)) for f in schema])


def _bare(kind: pa.DataType) -> pa.DataType:
    return with_inside(kind, [pa.field(f.name, _bare(f.type), f.nullable) for f in inside(kind)])


@pytest.mark.parametrize(
    ("brought", "table", "column"),
    [
        ("long", "double", "double"),
        ("int", "float", "float"),
        ("int", "long", "long"),
        ("long", "int", "int"),
        ("long", "decimal(38,9)", "decimal(38,9)"),
        ("decimal(10,4)", "decimal(38,2)", "decimal(38,2)"),
        ("timestamp", "timestamp_ntz", "timestamp_ntz"),
        ("long", "string", "text"),
        ("struct<a: long>", "string", "text"),
        ("string", "timestamp", "timestamp"),
        ("long", "double not null", "double not null"),
        ("struct<a: long, b: long>", "struct<a: double>", "struct<a: double, b: long>"),
        ("array<struct<a: int>>", "array<struct<a: long not null>>", "array<struct<a: long>>"),
        ("map<string,long>", "map<string,double>", "map<string,double>"),
        ("string", "uuid", "uuid"),
        ("string", "fixed(16) not null", "fixed(16) not null"),
        ("struct<a: string, b: string>", "struct<a: uuid>", "struct<a: uuid, b: text>"),
        ("array<string>", "array<uuid>", "array<uuid>"),
        (None, "string", "text"),
        (None, "long", "long"),
    ],
)
def test_column_that_a_table_has_is_of_its_type(brought: str | None, table: str, column: str) -> None:
    made = additions(spec(), found(n=brought), of({"iceberg n.t": there(n=table)}))
    assert (made.added, made.refused) == ({"n": column}, {})
    landed = with_required(without_marks(landing_schema(made.spec)), required_property({}, made.spec, "p"), "p")
    landed = with_forms(landed, forms_property({}, landing_schema(made.spec), "p"), "p")
    assert with_landed_columns(spec(), landed) == made.spec


def test_tables_agree_on_a_type_or_the_field_is_refused_by_their_names() -> None:
    tables = {
        "a": there(n="double", d="decimal(10,2)", x="long"),
        "b": there(n="float", d="decimal(12,2)", x="string"),
        "c": {},
    }
    made = additions(spec(), found(n="long", d="string", x="long", s__y="long"), of(tables))
    assert made.added == {"n": "float", "d": "decimal(10,2)", "s.y": "long"}
    assert made.refused == {"x": "no type of a column goes into all tables that have it: long in a, string in b"}


def test_part_of_a_declared_column_is_of_the_tables_type_too() -> None:
    tables = {"a": there(s="struct<x: long, Y: double>", l="array<struct<x: long, z: decimal(9,2)>>")}
    made = additions(spec(), found(s__y="long", l__element__z="double"), of(tables))
    assert made.added == {"s.y": "double", "l.element.z": "decimal(9,2)"}


def test_type_that_no_column_can_have_is_named_with_its_table() -> None:
    tables = {"iceberg n.t": of_schema(pa.schema([("at", pa.timestamp("ns"))]), ["at"])}
    made = additions(spec(), found(at="string", n="long"), of(tables))
    assert "timestamp[ns] (which no column of a pipeline can be) in iceberg n.t" in made.refused["at"]
    assert made.added == {"n": "long"}


def test_what_systems_take_besides_their_own_types() -> None:
    names = ["t", "b", "at", "n", "big", "pairs", "j"]
    schema = [
        Field("t", "STRING"), Field("n", "NUMERIC"), Field("big", "BIGNUMERIC", "REQUIRED"), Field("j", "JSON"),
        Field("pairs", "RECORD", "REPEATED", (Field("key", "STRING"), Field("value", "INTEGER"))),
    ]  # fmt: skip
    bigquery = bigquery_taken(schema, names, BigQueryTable(kind="bigquery", table="n.t", mode="append"))
    clickhouse = clickhouse_taken(
        {"t": "String", "at": "DateTime64(6, 'UTC')", "b": "Nullable(String)", "n": "IPv4"}, names
    )
    assert ({*bigquery}, {*clickhouse}) == ({"t", "n", "big", "pairs"}, {"t", "at", "b"})
    assert (bigquery["big"].nullable, clickhouse["t"].nullable, clickhouse["b"].nullable) == (False, False, True)
    tables = {"bigquery": bigquery, "clickhouse": clickhouse}
    brought = found(
        t="string", b="binary", at="timestamp_ntz", n="decimal(10,4)", big="long", pairs="map<string,long>", j="string"
    )
    assert additions(spec(), brought, of(tables)).added == {
        "t": "text not null", "b": "binary", "at": "timestamp_ntz not null", "n": "decimal(10,4)",
        "big": "decimal(38,18) not null", "pairs": "map<string,long>", "j": "text",
    }  # fmt: skip


EXCLUDED = ["card", "buyer.email", "lines.element.note", "secret"]


def test_excluded_fields_are_in_no_column_whatever_becomes_of_others() -> None:
    record = {
        "id": 1, "card": 5, "buyer": {"email": "e", "name": "n"}, "lines": [{"note": "x"}, {"note": "y", "nr": 1}],
        "secret": {"deep": 1}, "new": 1, "buyer.email": "e",
    }  # fmt: skip
    raw = raw_values(*[record] * 200)

    def decoded(**value: object) -> tuple[PipelineSpec, Decoded]:
        made = specs.spec(value={"exclude": EXCLUDED, "unknown_fields": "add", "columns": {"id": "long"}, **value})
        reader = record_reader(made, batch(1), landing_schema(made))
        return made, copied(reader.value_decoder).usual.decode(raw)

    opened, decoded_open = decoded()
    made = additions(opened, decoded_open.unknown)
    assert made.added == {"buyer": "struct<name: text>", "lines": "array<struct<nr: long>>", "new": "long"}
    after = record_reader(made.spec, batch(1), landing_schema(made.spec), refused={}).value_decoder.usual.decode(raw)
    assert not after.errors, "none of them is looked at any more"
    _, rescued = decoded(unknown_fields="rescue")
    rest = rescued.values.field("_rescued")[0].as_py()
    assert json.loads(rest) == {"buyer": {"name": "n"}, "lines": [None, {"nr": 1}], "new": 1}
    _, failed = decoded(unknown_fields="fail")
    assert failed.errors[0].message == "no column takes the fields buyer, lines, new"
    assert not decoded(unknown_fields="ignore", columns=made.spec.source.value.columns)[1].unknown


def test_path_of_many_steps_is_excluded_at_once() -> None:
    steps = [f"f{n}" for n in range(40)]
    path, joined = tuple(steps), (*steps[:9], ".".join(steps[9:]))
    opened = spec(exclude=[".".join(steps)])
    excluded = opened.source.value.excluded
    assert path in excluded
    assert joined in excluded
    assert path[:-1] not in excluded
    made = additions(opened, FoundFields({path[:9]: FoundField(None, 1), ("n",): FoundField(pa.int64(), 1)}))
    assert made.added == {"n": "long"}, "it would be text around the excluded field"


def test_text_is_no_place_for_what_is_excluded() -> None:
    buyer = spec((specs.table("clickhouse"),), exclude=EXCLUDED)
    assert (
        "with a field in it that `exclude` names" in additions(buyer, found(buyer="struct<a: long>")).refused["buyer"]
    )
    assert additions(spec(exclude=EXCLUDED), found(buyer=None, lines="array<string>", n="long")).added == {"n": "long"}


def test_column_whose_field_is_renamed_or_excluded_since_gets_no_values_any_more() -> None:
    wide = {f"f{n}": "long" for n in range(150)}
    made = additions(spec(), found(price="long", s__y="long", o="struct<a: long, b: long>", **wide)).spec
    later = spec(exclude=["o.b", "f0"], rename={"price": "price_text", "s.y": "z"})
    opened = with_landed_columns(later, landing_schema(made))
    columns = {name: kind for name, kind in opened.source.value.columns.items() if name not in wide}
    declared = spec().source.value.columns
    assert columns == {**declared, "o": "struct<a: long>"}
    assert len(opened.source.value.columns) == len(declared) + 150
    again = additions(opened, found(price_text="string", s__z="string")).spec
    raw = raw_values({"id": 1, "price": "12.5", "s": {"x": 1, "y": "t"}, "o": {"a": 1, "b": 2}})
    (row,) = record_reader(again, batch(1), landing_schema(again)).value_decoder.usual.decode(raw).values.to_pylist()
    assert (row["price_text"], row["s"], row["o"]) == ("12.5", {"x": 1, "z": "t"}, {"a": 1})
    assert with_landed_columns(later, landing_schema(again)) == again


def behind(sql: str, **value: object) -> PipelineSpec:
    return specs.spec(BIGQUERY, columns=COLUMNS, value={"unknown_fields": "add", **value}, source={"transform": sql})


def reopened(opened: PipelineSpec, made: PipelineSpec) -> PipelineSpec:
    """The pipeline file, opened again after the other one's columns were landed."""
    return with_landed_columns(opened, landing_schema(made))


def test_new_fields_pass_the_star_of_a_transform() -> None:
    opened = behind("select * except (s), s.x as x, named_struct('x', 1, 'own', 2) as s, 'prod' as env from records")
    made = additions(opened, found(n="long", l__element__z="long", s__y="long"))
    assert made.added == {"n": "long", "l.element.z": "long"}, "what is new in `s` is not in the statement's `s`"
    assert made.spec.source.row == {
        "id": "long not null",
        "l": "array<struct<x: long, z: long>>",
        "m": "map<string,long>",
        "n": "long",
        "x": "long",
        "s": "struct<x: int, own: int>",
        "env": "string",
    }
    again = reopened(opened, made.spec)
    assert again.source == made.spec.source, "the columns of the statement are no fields of records"
    wider = additions(again, found(n="double"))
    assert reopened(opened, wider.spec).source.row["n"] == "double"


def test_fields_of_a_struct_whose_parts_the_statement_gives_too() -> None:
    opened = behind("select *, s.* from records")
    made = additions(opened, found(s__y="long")).spec
    assert made.source.row.keys() == {*COLUMNS, "x", "y"}
    assert reopened(opened, made).source == made.source


def test_columns_behind_a_transform_may_all_be_left_to_the_records() -> None:
    opened = specs.spec(BIGQUERY, source={"value": {}, "transform": "select *, _topic as topic from records"})
    made = additions(opened, found(id="long")).spec
    assert made.source.row == {"id": "long", "topic": "string"}
    assert reopened(opened, made).source == made.source


def test_column_of_the_record_that_a_statement_gave_before_is_no_field_of_records() -> None:
    made = behind("select *, _topic, _timestamp as at from records")
    opened = behind("select *, _timestamp as at from records")
    assert reopened(opened, made).source == opened.source


def test_field_with_the_name_of_a_key_that_is_not_decoded_is_a_column() -> None:
    opened = behind("select *, 1 as one from records")
    made = additions(opened, found(_key="string"))
    assert made.added == {"_key": "text"}
    assert reopened(opened, made.spec).source == made.spec.source


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("env", "two result columns have the name env"),
        ("ENV", "differ in upper and lower case only"),
        ("_Topic", "_Topic is a column that `records` has besides"),
        ("__usable", "__usable is a column that `records` has besides"),
        ("S", "s and S are one name to Spark"),
    ],
)
def test_field_that_the_statement_leaves_no_room_for_is_refused(field: str, reason: str) -> None:
    opened = behind("select * except (s), 'prod' as env from records")
    made = additions(opened, found(n="long") + FoundFields({(field,): FoundField(parse_type("long")[0], 1)}))
    assert made.added == {"n": "long"}
    assert reason in made.refused[field]


def test_fields_in_columns_that_the_statement_changes_are_left_out_as_before() -> None:
    opened = behind("select * except (s) from records")
    reader = record_reader(opened, batch(1), landing_schema(opened), refused={"a": "no"})
    bad = reader.value_decoder.usual.decode(raw_values({"id": 1, "s": {"new": 1}}, {"id": 2, "l": [{"new": 1}]}))
    assert list(bad.errors) == [1]
