"""Tables that sinks have filled are declared as they are."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from google.cloud.bigquery import SchemaField
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from jobs.changes.columns import landing_schema
from jobs.connect_import.building import Imported, build
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.known import KnownTable, all_of
from jobs.destinations.bigquery import connect_tables as bigquery_tables
from jobs.destinations.clickhouse import connect_tables as clickhouse_tables
from jobs.destinations.clickhouse.present_table import Present
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.iceberg import connect_tables as iceberg_tables
from jobs.landing.readers import record_reader
from jobs.landing.transform import DecodeStep
from jobs.offsets import OffsetRange, TopicPartition
from jobs.schema.types import parse_type
from jobs.spec.columns import row_columns
from jobs.spec.members import expand
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.source import Source
from resources.clickhouse import ClickHouseServer
from resources.iceberg import IcebergCatalog
from tests.kit.arrow import kafka_records
from tests.kit.batches import batch
from tests.kit.connectors import ICEBERG, JSON, KAFKA, chain

T0 = TopicPartition("t", 0)
CLICKHOUSE = {
    "connector.class": "com.clickhouse.kafka.connect.ClickHouseSinkConnector",
    "topics": "orders,lines",
    "hostname": "ch",
    "database": "shop",
    **JSON,
}


def made(options: dict[str, str], known: dict[str, KnownTable], **more: Any) -> tuple[Imported, PipelineSpec]:
    imported = build(Configuration("sink", options), known=known, **more)
    return imported, PipelineSpec.model_validate(imported.document)


def made_of_table(options: dict[str, str], columns: dict[str, str]) -> tuple[Imported, PipelineSpec]:
    return made(options, {"db.t": KnownTable(columns)})


@pytest.mark.parametrize(
    ("native", "declared"),
    [
        ("Int64", "long not null"),
        ("LowCardinality(Nullable(String))", "string"),
        ("Nullable(UInt64)", "decimal(20,0)"),
        ("Decimal(18, 4)", "decimal(18,4) not null"),
        ("Decimal(76, 4)", "text not null"),
        ("DateTime64(3, 'UTC')", "timestamp not null"),
        ("Enum8('a, (b' = 1, 'c' = 2)", "string not null"),
        ("SimpleAggregateFunction(max, Nullable(Int32))", "int"),
        ("Array(Nullable(String))", "array<string>"),
        ("Map(LowCardinality(String), Array(Int64))", "map<string,array<long not null>>"),
        ("Tuple(a Int64, b Nullable(String))", "struct<a: long not null, b: string>"),
        ("Tuple(`a b` Int64, c Array(Int128))", "struct<`a b`: long not null, c: array<text not null>>"),
        ("Tuple(Int64, String)", None),
        ("AggregateFunction(uniq, Int64)", None),
        ("Array(AggregateFunction(uniq, Int64))", None),
    ],
)
def test_types_of_clickhouse(native: str, declared: str | None) -> None:
    assert clickhouse_tables.declared_type(native) == declared


@pytest.mark.parametrize(
    ("field", "declared"),
    [
        (SchemaField("a", "INTEGER", "REQUIRED"), "long not null"),
        (SchemaField("a", "STRING", "REPEATED"), "array<string>"),
        (SchemaField("a", "JSON"), "text"),
        (SchemaField("a", "RANGE"), None),
        (SchemaField("a", "NUMERIC"), "decimal(38,9)"),
        (SchemaField("a", "NUMERIC", precision=10, scale=2), "decimal(10,2)"),
        (SchemaField("a", "NUMERIC", "REPEATED", precision=5), "array<decimal(5,0)>"),
        (SchemaField("a", "BIGNUMERIC", "REQUIRED", precision=10, scale=2), "decimal(10,2) not null"),
        # Only `column_types` makes a BIGNUMERIC of few digits, and it names no parts of columns.
        (SchemaField("a", "BIGNUMERIC", "REPEATED", precision=10, scale=2), None),
        (SchemaField("a", "BIGNUMERIC", precision=40, scale=38), "decimal(38,36)"),
        (SchemaField("a", "BIGNUMERIC", precision=76, scale=38), "decimal(38,19)"),
        (SchemaField("a", "RECORD", fields=[SchemaField("b c", "DATE", "REQUIRED")]), "struct<`b c`: date not null>"),
        (SchemaField("a", "RECORD", fields=[SchemaField("b", "GEOGRAPHY")]), None),
    ],
)
def test_types_of_bigquery(field: SchemaField, declared: str | None) -> None:
    assert bigquery_tables.declared_type(field) == declared


def test_rows_of_several_tables_are_rows_of_each() -> None:
    tables = [KnownTable({"id": "long not null", "a": "int not null"}), KnownTable({"id": "long not null", "a": "int"})]
    assert all_of(tables) == {"id": "long not null", "a": "int"}
    assert all_of([*tables, KnownTable({"b": "date not null"})]) == {"id": "long", "a": "int", "b": "date"}


def test_each_topic_has_the_columns_of_its_table() -> None:
    usual = clickhouse_tables.usual
    known = {
        "shop.orders": KnownTable({"id": "long not null"}, {"id": "UInt32"}, usual, lacks_ours=True, todo=["look"]),
        "shop.lines": KnownTable({"n": "int", "line": "string"}, {"line": "Nullable(String)"}, usual),
    }
    mask = chain((KAFKA + "MaskField$Value", {"fields": "line", "replacement": "*"}))
    imported, spec = made({**CLICKHOUSE, "bufferFlushTime": "60000"}, known)
    assert imported.todo == ["look"]
    found = {member.key: member.spec for member in expand("sink", spec, ["orders", "lines"]).members}
    columns = {topic: dict(one.source.value.columns) for topic, one in found.items()}
    assert columns == {"orders": {"id": "long not null"}, "lines": {"n": "int", "line": "text"}}
    assert {one.source.value.unknown_fields for one in found.values()} == {"ignore"}
    tables = {topic: one.tables[0] for topic, one in found.items()}
    assert all(isinstance(table, ClickHouseTable) for table in tables.values())
    orders, lines = tables["orders"], tables["lines"]
    assert isinstance(orders, ClickHouseTable)
    assert isinstance(lines, ClickHouseTable)
    assert (orders.column_types, lines.column_types) == ({"id": "UInt32"}, {})
    assert (orders.evolve.add_columns, lines.evolve.add_columns) == (True, False)
    _, spec = made({**CLICKHOUSE, **mask}, known)
    (lines_member,) = expand("sink", spec, ["lines"]).members
    assert lines_member.spec.source.row == {"n": "int", "line": "string"}
    assert lines_member.spec.source.transform is not None


def known_of_clickhouse(monkeypatch: pytest.MonkeyPatch, present: Present, zone: str = "UTC") -> KnownTable:
    monkeypatch.setattr(clickhouse_tables, "describe", lambda *_: present)
    monkeypatch.setattr(clickhouse_tables, "windows", lambda *_: [])
    rows = [{"name": n, "type": kind, "default_kind": "", "zone": zone} for n, kind in present.types.items()]
    table = clickhouse_tables.known(cast(ClickHouseServer, SimpleNamespace(rows=lambda *_: rows)), "shop.t")
    assert table is not None
    return table


@pytest.mark.parametrize(("of_server", "zones"), [("Etc/UTC", ""), ("Asia/Tokyo", "seen (Asia/Tokyo), ")])
def test_texts_without_a_zone_are_in_that_of_the_column_of_clickhouse(
    monkeypatch: pytest.MonkeyPatch, of_server: str, zones: str
) -> None:
    zoned = {"at": "DateTime('Europe/Berlin')", "list": "Array(DateTime64(6, 'Europe/Berlin'))"}
    types = {"id": "Int64", "seen": "Nullable(DateTime)", **zoned, "utc": "DateTime64(6, 'UTC')"}
    present = Present("u", "MergeTree", "", "", 5, types, frozenset(), frozenset({"id"}), "id", True, ())
    known = {"shop.t": known_of_clickhouse(monkeypatch, present, of_server)}
    one = {**CLICKHOUSE, "topics": "t"}
    (line,) = (line for line in made(one, known)[0].todo if "without a zone" in line)
    assert f"zone of the column: {zones}at (Europe/Berlin), list (Europe/Berlin);" in line
    sql = f"select {line[line.index('cast(') : line.rindex(' in source.transform')]} as at from records"
    source = {
        "connection": "kafka",
        "topics": ["t"],
        "transform": sql.replace("<column>", "at").replace("<zone>", "CET"),
    }
    value = {"format": "json", "columns": {"at": "timestamp_ntz"}}
    assert dict(Source.model_validate({**source, "value": value}).row) == {"at": "timestamp"}
    imported, _ = made({**one, "value.converter.schemas.enable": "true"}, known)
    assert not any("without a zone" in line for line in imported.todo)


def test_columns_of_clickhouse_that_no_run_can_make_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    types = {"id": "Int64", "day": "Date", "code": "UInt32", "n": "Int64"}
    present = Present("u", "MergeTree", "", "", 5, types, frozenset({"day"}), frozenset({"id"}), "id", True, ())
    table = known_of_clickhouse(monkeypatch, present)
    assert table.required == ["id", "day", "code", "n"]
    assert table.fixed == {"id", "day", "code"}


def test_topics_without_a_known_table_bring_their_columns_and_that_is_reported() -> None:
    imported, spec = made(CLICKHOUSE, {})
    assert dict(spec.source.value.columns) == {}
    assert any(line.startswith("source.value.unknown_fields") for line in imported.todo)


TABULAR = {
    **ICEBERG,
    "connector.class": "io.tabular.iceberg.connect.IcebergSinkConnector",
    "iceberg.tables": "db.a,db.b",
    "iceberg.tables.upsert-mode-enabled": "true",
}


def test_identifier_fields_are_the_key_where_the_sink_went_by_them() -> None:
    table = KnownTable({"id": "long not null", "name": "string"}, key=["id"])
    _, spec = made(TABULAR, {"db.a": table, "db.b": table})
    assert spec.changes.key is not None
    assert (spec.changes.key.columns, spec.changes.key.source) == (["id"], "value")


@pytest.mark.parametrize(
    ("kind", "made"),
    [("long", "unix_millis(_timestamp)"), ("string", "unix_millis(_timestamp)"), ("timestamp", "_timestamp")],
)
def test_timestamps_in_columns_of_numbers_are_milliseconds(kind: str, made: str) -> None:
    insert = (KAFKA + "InsertField$Value", {"timestamp.field": "ts"})
    _, spec = made_of_table({**ICEBERG, **chain(insert)}, {"id": "long", "ts": kind})
    assert spec.source.transform is not None
    assert (spec.source.transform.sql, spec.source.row["ts"]) == (f"select *, {made} as `ts` from records", kind)
    metadata = ("io.tabular.iceberg.connect.transforms.KafkaMetadataTransform", {"field_name": "m"})
    _, spec = made_of_table({**ICEBERG, **chain(metadata)}, {"id": "long", "m_timestamp": "long"})
    assert spec.source.transform is not None
    assert spec.source.transform.sql == "select *, unix_millis(_timestamp) as `m_timestamp` from records"


def test_columns_of_text_take_any_value_of_plain_json() -> None:
    columns = {"id": "long", "a": "string not null", "b": "string", "c": "string"}
    options = chain((KAFKA + "MaskField$Value", {"fields": "b"}), (KAFKA + "ReplaceField$Value", {"renames": "d:c"}))
    _, spec = made_of_table({**ICEBERG, **options}, columns)
    # A transform reads `b`, as text.
    assert spec.source.value.columns == {"id": "long", "a": "text not null", "b": "string", "d": "text"}
    assert all("column_types" not in table for table in spec.model_dump()["tables"])
    _, spec = made_of_table({**ICEBERG, "value.converter.schemas.enable": "true"}, columns)
    assert spec.source.value.columns == columns


FIRST = "case upper(left(trim({}), 1)) when 'U' then 'u' when 'D' then 'd' else 'i' end as `_op` from records"
CDC = {**TABULAR, "iceberg.tables.cdc-field": "op", "iceberg.tables.default-id-columns": "id"}


@pytest.mark.parametrize(
    ("more", "columns", "statement"),
    [
        ({}, {"op": "string"}, f"select *, {FIRST.format('`op`')}"),
        ({}, {"name": "string"}, f"select * except (`op`), {FIRST.format('`op`')}"),
        ({"iceberg.tables.cdc-field": "m.op"}, {}, f"select * except (`m`), {FIRST.format('`m`.`op`')}"),
    ],
)
def test_operations_go_by_how_their_values_begin_as_in_the_sink(
    more: dict[str, str], columns: dict[str, str], statement: str
) -> None:
    _, spec = made({**CDC, **more}, {"db.a": KnownTable({"id": "long not null", **columns})})
    assert spec.source.transform is not None
    assert spec.source.transform.sql == statement
    assert spec.changes.op is not None
    assert (spec.changes.op.field, spec.changes.op.keep) == ("_op", False)
    assert [column.name for column in row_columns(spec, spec.tables[0])] == ["id", *columns]
    apache = made({**CDC, **more, "connector.class": ICEBERG["connector.class"]}, {"db.a": KnownTable({"id": "long"})})
    assert apache[1].source.transform is None


RENAME = chain((KAFKA + "ReplaceField$Value", {"renames": "name:title"}))


@pytest.mark.parametrize(("more", "column"), [({}, "name"), (RENAME, "title")])
def test_deletes_of_a_cdc_field_need_nothing_but_the_key(more: dict[str, str], column: str) -> None:
    """As in the sink; rows have what the table requires."""
    table = KnownTable({"id": "long not null", column: "string not null", "n": "long"}, key=["id"])
    _, spec = made({**CDC, **more}, {"db.a": table})
    nullable = {c.name: c.nullable for c in row_columns(spec, spec.tables[0])}
    assert nullable == {"id": False, column: False, "n": True}
    assert spec.source.value.columns == {"id": "long not null", "name": "text", "n": "long", "op": "string"}
    reader = record_reader(spec, batch(1, ranges={T0: OffsetRange(0, 3)}), landing_schema(spec))
    written: list[dict[str, Any]] = [{"id": 1, "op": "D"}, {"id": 2, "op": "I"}, {"id": 3, "name": "a", "op": "I"}]
    raw = kafka_records(*((None, value) for value in written))
    decoded = DecodeStep(None, reader.value_decoder).read(raw)
    assert decoded.column("problem").null_count == len(written)
    # As Spark evaluates the statement.
    result = [{"id": v["id"], column: v.get("name"), "_op": v["op"].lower()} for v in written]
    kind = pa.struct([pa.field(name, parse_type(text, "")[0]) for name, text in spec.source.row.items()])
    landed = reader.read(decoded.append_column("result", pa.array(result, kind)))
    assert [e and (e["kind"], e["message"]) for e in landed.column("error").to_pylist()] == [
        None, ("missing", f"column {column}: expected a value, found null"), None,
    ]  # fmt: skip
    assert landed.column("op").to_pylist() == ["delete", None, "insert"]


@pytest.mark.parametrize("field", ["kind", "about.kind"])
def test_field_by_which_the_sink_routes_becomes_a_column_and_a_to_do(field: str) -> None:
    routes = {"iceberg.table.db.a.route-regex": "a", "iceberg.table.db.b.route-regex": "b"}
    options = {**TABULAR, "iceberg.tables.route-field": field, "iceberg.tables.default-id-columns": "id", **routes}
    table = KnownTable({"id": "long", "name": "string"})
    imported, spec = made(options, {"db.a": table, "db.b": table})
    assert [one.route.field for one in spec.tables if one.route] == [field, field]
    column = field.split(".", maxsplit=1)[0]
    assert list(spec.source.row) == ["id", "name", column]
    assert all(one.evolve.add_columns for one in spec.tables)
    assert any(line.startswith(f"{column}: says which table") for line in imported.todo)
    assert not any("did you mean" in line for line in imported.todo)


def test_each_topic_says_what_its_table_asks_of_a_person() -> None:
    """Times as numbers, and what the transforms meet in one topic's columns, as for a table of all topics."""
    at = {"id": "long", "at": "timestamp"}
    known = {"shop.orders": KnownTable({**at, "n": "long"}), "shop.lines": KnownTable({**at, "made": "timestamp"})}
    options = {**CLICKHOUSE, **chain((KAFKA + "Cast$Value", {"spec": "n:int64"}), ("com.acme.Secret$Value", {}))}
    imported, _ = made(options, known, topics=["orders", "lines"])
    (times,) = [line for line in imported.todo if line.startswith("source.value.time_unit")]
    assert times.startswith("source.value.time_unit: JSON numbers for at, made are milliseconds")
    assert [line.split(" as ")[0] for line in imported.todo if "casts it" in line] == ["orders: n: declared"]
    assert [line.split(":")[0] for line in imported.todo if "Secret" in line] == ["Secret"]
    alone, _ = made({**options, "topics": "orders"}, known)
    assert any(line.startswith("n: declared as long") for line in alone.todo)


def test_fields_of_an_iceberg_table_with_other_names_are_to_do(lake: IcebergCatalog) -> None:
    """The sinks fill a column from each field that the table's name mapping names for it."""
    address = StructType(NestedField(3, "city", StringType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "address", address))
    table = lake.create("db.t", schema)
    assert (found := iceberg_tables.known(lake, False, "db.t")) is not None
    assert list(found.todo) == []
    inner = {"field-id": 3, "names": ["town", "city"]}
    names = [{"field-id": 1, "names": ["id", "ID"]}, {"field-id": 2, "names": ["address"], "fields": [inner]}]
    with table.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": json.dumps(names)})
    assert (found := iceberg_tables.known(lake, False, "db.t")) is not None
    assert [line.partition("write ")[2] for line in found.todo] == [
        "`ID: id` in source.value.rename",
        "`address.town: city` in source.value.rename",
    ]
