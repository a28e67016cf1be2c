"""Statements that create tables, also those of clusters that no test here can run; and files that make no sense."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest

from jobs.destinations.clickhouse.checks import check_takes_rows
from jobs.destinations.clickhouse.columns import Column, clickhouse_type, table_column
from jobs.destinations.clickhouse.engines import removes_old_rows
from jobs.destinations.clickhouse.named_types import bare
from jobs.destinations.clickhouse.present_table import Present, describe, plan_changes
from jobs.destinations.clickhouse.present_types import compared_types, declared_field
from jobs.destinations.clickhouse.replacing import check_replaces
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.clickhouse.state import Lease, state_text
from jobs.destinations.clickhouse.statements import Statements
from jobs.destinations.clickhouse.wanted_table import Layout, creation
from jobs.destinations.clickhouse.window import for_new_table, most_partitions, needed
from jobs.destinations.registry import kind_of
from jobs.evolution import evolved
from jobs.schema.types import field_text, parse_type
from jobs.spec.columns import RowColumn
from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection
from resources.errors import ConfigurationError, SchemaRefused
from sql import render
from tests.kit import specs
from tests.kit.batches import committed

ID = Column("id", "Int64", "Int64", pa.int64(), False, True)
INSTANT = "Nullable(DateTime64(6, 'UTC'))"
AT = Column("at", INSTANT, INSTANT, pa.timestamp("us", "UTC"), True, False)


def _layout(mode: str, cluster: str | None = None, ordered: bool = False, **options: object) -> Layout:
    table = ClickHouseTable.model_validate({"kind": "clickhouse", "table": "air.flights", "mode": mode, **options})
    coordinates = [
        Column("_topic", "String", "String", pa.string(), False, False),
        Column("_partition", "Int32", "Int32", pa.int32(), False, False),
        Column("_offset", "Int64", "Int64", pa.int64(), False, False),
    ]
    return Layout(table, (ID, AT, *(coordinates if mode == "append" else [])), ordered, 1000, cluster)


def _words(text: str) -> str:
    return " ".join(text.split())


def test_replicated_table_on_a_cluster() -> None:
    engine = "ReplicatedReplacingMergeTree"
    layout = _layout("upsert_delete", "prod", engine=engine, partition_by="id % 16", ttl="toDate(at)")
    assert _words(creation(layout)) == (
        f"CREATE TABLE IF NOT EXISTS `air`.`flights` ON CLUSTER `prod` ( `id` Int64, `at` {INSTANT}, "
        "`_version` UInt64, `_deleted` UInt8 ) ENGINE = ReplicatedReplacingMergeTree(_version, _deleted) "
        "PARTITION BY id % 16 ORDER BY (`id`) TTL toDate(at) SETTINGS replicated_deduplication_window = 1000, "
        "replicated_deduplication_window_seconds = 604800"
    )


def test_plain_tables() -> None:
    append = _words(creation(_layout("append", settings={"storage_policy": "s3"})))
    assert "ENGINE = MergeTree ORDER BY (`id`)" in append
    assert "INDEX `batchmerge_offset` `_offset` TYPE minmax" in append
    assert append.endswith("SETTINGS non_replicated_deduplication_window = 1000, storage_policy = 's3'")
    assert "`_version` UInt128 ) ENGINE = ReplacingMergeTree(_version)" in _words(
        creation(_layout("upsert", ordered=True))
    )


@pytest.mark.parametrize(
    ("engine", "beside", "window"),
    [
        ("MergeTree", "MergeTree", "non_replicated_deduplication_window"),
        ("ReplicatedMergeTree('/t', 'r1')", "ReplicatedMergeTree", "replicated_deduplication_window"),
        ("SharedMergeTree", "SharedMergeTree", "replicated_deduplication_window"),
    ],
)
def test_side_table_is_replicated_as_its_table_is(engine: str, beside: str, window: str) -> None:
    statements = Statements(_layout("append", engine=engine), ("default", "batchmerge_state"))
    expected = f"ENGINE = {beside} ORDER BY (`topic`, `partition`, `offset`) SETTINGS {window} = 10000"
    assert _words(statements.create_side_table()).endswith(expected)


def test_plan_shows_order_partitions_and_ttl() -> None:
    layout = _layout("upsert", partition_by="id % 16", ttl="toDate(at)")
    assert layout.summary == "ReplacingMergeTree(_version), ordered by id, partitioned by id % 16, TTL toDate(at)"
    assert _layout("append").summary == "MergeTree, ordered by id"


@pytest.mark.parametrize(
    ("ttl", "removes"),
    [
        ("", False),
        (" TTL toDate(at) + toIntervalDay(30)", True),
        (" TTL toDate(at) + toIntervalDay(3) TO VOLUME 'cold'", False),
        (" TTL greatest(at, then) TO DISK 'cold', at + toIntervalYear(1)", True),
    ],
)
def test_expiry_of_a_table_as_the_server_shows_it(ttl: str, removes: bool) -> None:
    assert removes_old_rows(f"MergeTree ORDER BY id{ttl} SETTINGS index_granularity = 8192") == removes


def test_engine_that_joins_rows_is_warned_of() -> None:
    spec = specs.spec(
        specs.table("clickhouse", engine="ReplacingMergeTree(at)"),
        specs.table("clickhouse", name="n.u", engine="ReplicatedMergeTree"),
        specs.table("clickhouse", "upsert", "n.v"),
        key="id",
    )
    warnings = [list(kind_of(table).warnings(spec, table)) for table in spec.tables]
    assert [len(some) for some in warnings] == [1, 0, 0]
    assert "the engine ReplacingMergeTree(at) joins rows" in warnings[0][0]


def test_append_tables_carry_coordinates() -> None:
    table = ClickHouseTable(kind="clickhouse", table="a.b", mode="append", metadata_columns=["batch", "offset"])
    assert table.metadata_columns == ["batch", "offset", "topic", "partition"]


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("long", "Nullable(Int64)"),
        ("array<long not null>", "Array(Int64)"),
        ("map<string,array<double>>", "Map(String, Array(Nullable(Float64)))"),
        ("struct<a: int not null, `b c`: date>", "Tuple(a Int32, `b c` Nullable(Date32))"),
        ("struct<straße: int not null>", "Tuple(`straße` Int32)"),
        ("decimal(38,10)", "Nullable(Decimal(38, 10))"),
    ],
)
def test_default_types(declared: str, expected: str) -> None:
    kind, nullable = parse_type(declared)
    assert clickhouse_type(kind, nullable) == expected
    assert declared_field(expected) == pa.field("", kind, nullable)


@pytest.mark.parametrize(
    ("declared", "present", "compared"),
    [
        ("struct<a: int>", "Tuple(a Nullable(Int32))", None),
        ("struct<a: int>", "Tuple(a Nullable(Int64))", None),
        ("struct<a: int not null>", "Tuple(a Nullable(Int64), fax Nullable(String))", "Tuple(a Nullable(Int64))"),
        ("array<struct<a: int>>", "Array(Tuple(b Int64, a Int32))", "Array(Tuple(a Int32))"),
        ("array<struct<a: int>>", "Array(Tuple(b Enum8('x' = 1), a Int32))", None),
        ("decimal(10,2)", "Nullable(Decimal(38, 2))", None),
    ],
)
def test_values_are_compared_without_nested_fields_that_only_the_table_has(
    declared: str, present: str, compared: str | None
) -> None:
    """But in the table's own types: a cast to others would change values, or fail."""
    kind, nullable = parse_type(declared)
    column = Column("c", present, present, kind, nullable, False)
    found = compared_types([column], {"c": present})
    assert found == ({"c": compared} if compared else {})
    arguments = {"table": ("d", "t"), "columns": ["c"], "texts": {"c": "String"}, "limit": 0, "share": None, "of": 1}
    text = f"CAST(`c`, '{compared}')" if compared else "`c`"
    assert f"toString({text}) AS `c`" in render("clickhouse", "some_rows", final=False, casts=found, **arguments)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("struct<a: int, b: long not null>", "struct<c: date, a: long>", "struct<a: long, b: long not null, c: date>"),
        ("array<struct<a: int>>", "array<struct<a: int, b: text>>", "array<struct<a: int, b: string>>"),
        ("map<string,array<float>>", "map<string,array<double>>", "map<string,array<double>>"),
        ("struct<a: struct<b: long>>", "struct<a: struct<b: int not null>>", "struct<a: struct<b: long>>"),
    ],
)
def test_what_a_nested_column_becomes(old: str, new: str, expected: str) -> None:
    assert evolved(parse_type(old)[0], parse_type(new)[0]) == parse_type(expected)[0]


@pytest.mark.parametrize(
    ("kind", "declared"),
    [
        ("LowCardinality(String)", "string not null"),
        ("LowCardinality(Nullable(String))", "string"),
        ("SimpleAggregateFunction(sum, Int64)", "long not null"),
        ("SimpleAggregateFunction(groupArrayArray(5), Array(LowCardinality(String)))", "array<string not null>"),
        ("Map(LowCardinality(String), Int64)", "map<string,long not null>"),
        ("LowCardinality(UUID)", None),
        ("AggregateFunction(sum, Int64)", None),
    ],
)
def test_a_column_takes_what_its_type_holds(kind: str, declared: str | None) -> None:
    found = declared_field(kind)
    assert (found and field_text(found)) == declared


def test_window_counts_parts() -> None:
    assert needed(3, partitions=1) == 6
    assert needed(3, partitions=100) == 600
    assert for_new_table(10_000_000, 10_000, partitions=1) > needed(1000, partitions=1)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, 100), ({"max_partitions_per_insert_block": "300"}, 300), ({"max_partitions_per_insert_block": "0"}, 1000000)],
)
def test_partitions_of_an_insert_are_those_that_the_connection_allows(settings: dict[str, str], expected: int) -> None:
    connection = ClickHouseConnection(kind="clickhouse", endpoints=["h:1"], settings=settings)
    assert most_partitions(connection) == expected


def _there(engine: str, order: str = "id", version: str | None = "UInt64", sorting: str | None = None) -> Present:
    """A table of `_layout("upsert_delete")` that is there, as the server describes it."""
    return Present(
        id="u",
        engine=engine.partition("(")[0],
        engine_full=f"{engine} ORDER BY {order} SETTINGS index_granularity = 8192",
        statement="",
        rows=5,
        types={"id": "Int64", "at": INSTANT, **({"_version": version} if version else {}), "_deleted": "UInt8"},
        partition_columns=frozenset(),
        sorting_columns=frozenset((sorting or order).split(", ")),
        sorting_key=order,
        partitioned=False,
        views=(),
    )


OURS = "ReplacingMergeTree(_version, _deleted)"


@pytest.mark.parametrize(
    ("mode", "there"),
    [
        ("upsert_delete", _there(OURS)),
        ("upsert_delete", _there("ReplicatedReplacingMergeTree('/t/(a), b', '{replica}', _version, _deleted)")),
        ("upsert_delete", _there("SharedReplacingMergeTree('/t', 'r\\'1', _version, _deleted)")),
        ("upsert", _there("ReplacingMergeTree(_version)")),
        ("upsert", _there(OURS)),
        # So the server says it after an ALTER.
        ("upsert_delete", _there(OURS, "(id)", sorting="id")),
        ("upsert_delete", _there(OURS, "(intDiv(id, 100), `id`)", sorting="id")),
        ("upsert_delete", _there(OURS, "intDiv(id, 100), `id`", sorting="id")),
        ("upsert_delete", _there("Distributed('cluster', 'air', 'flights_local')", "", sorting="none")),
        ("append", _there("MergeTree", "at", version=None)),
    ],
)
def test_tables_that_replace_rows_by_our_versions(mode: str, there: Present) -> None:
    check_replaces(_layout(mode), there)


@pytest.mark.parametrize(
    ("ordered", "there", "what"),
    [
        (False, _there(OURS, version="UInt128"), "column _version is UInt128 in place of UInt64"),
        (True, _there(OURS), "column _version is UInt64 in place of UInt128"),
        (True, _there("Distributed('c', 'd', 't')"), "column _version is UInt64 in place of UInt128"),
        (False, _there(OURS, version=None), "it has no column _version (UInt64)"),
        (False, _there(OURS, "tenant"), "it is sorted by tenant in place of id"),
        (False, _there(OURS, "id, tenant"), "it is sorted by id, tenant in place of id"),
        (False, _there(OURS, "intDiv(id, 100)", sorting="id"), "it is sorted by intDiv(id, 100) in place of id"),
        (False, _there("MergeTree"), "its engine is MergeTree in place of ReplacingMergeTree(_version, _deleted)"),
        (False, _there("ReplacingMergeTree(at)"), "its engine is ReplacingMergeTree(at) in place of "),
        (False, _there("ReplicatedReplacingMergeTree('/t/_version, _deleted', 'r', _version)"), "its engine is "),
    ],
)
def test_tables_that_keep_other_rows_are_refused(ordered: bool, there: Present, what: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        check_replaces(_layout("upsert_delete", ordered=ordered), there)
    assert what in refused.value.what
    assert refused.value.where == "clickhouse air.flights"
    assert "name a new table in `tables`" in refused.value.remedy


def test_a_pipeline_goes_on_with_the_buffer_that_it_has_written(caplog: pytest.LogCaptureFixture) -> None:
    """Earlier versions took such tables; a new pipeline, or another table, is refused."""
    buffer = replace(_there("MergeTree", "at", version=None), engine="Buffer")
    check_takes_rows("here", Lease(state=state_text(committed(1)), table_id="u"), buffer)
    assert "here: its engine, Buffer, holds rows in memory" in caplog.text
    for lease in (Lease(), Lease(table_id="u"), Lease(state=state_text(committed(1)), table_id="v")):
        with pytest.raises(ConfigurationError, match="its engine, Buffer"):
            check_takes_rows("here", lease, buffer)


def _created(version: str) -> Present:
    """The table of upserts of `_there(OURS)`, with its definition."""
    columns = f"`id` Int64, `at` {INSTANT}, `_version` {version}, `_deleted` UInt8"
    return replace(_there(OURS), statement=f"CREATE TABLE air.flights ({columns}) ENGINE = {OURS} ORDER BY id")


@pytest.mark.parametrize("version", ["UInt64", "UInt128"])
def test_a_table_of_upserts_is_none_of_appends(version: str) -> None:
    """Rows without a version are behind all others: `mode` was changed in the file."""
    with pytest.raises(SchemaRefused, match=r"rows of mode append have no _version: it would hide them"):
        check_replaces(_layout("append"), _created(version))


def test_a_table_that_gives_each_row_a_version_takes_appends() -> None:
    check_replaces(_layout("append"), _created("UInt64 DEFAULT toUnixTimestamp(now())"))
    own = Column("_version", "UInt64", "UInt64", pa.int64(), False, False)
    layout = _layout("append")
    check_replaces(replace(layout, columns=(*layout.columns, own)), _created("UInt64"))


def test_a_key_of_more_columns_needs_another_table() -> None:
    layout = _layout("upsert_delete")
    wider = replace(layout, columns=(*layout.columns, replace(ID, name="tenant")))
    with pytest.raises(SchemaRefused, match="it is sorted by id in place of id, tenant"):
        check_replaces(wider, _there(OURS))


@pytest.mark.parametrize(
    ("deletes", "remedy"), [("rows", "name it in `changes.key`"), ("leave_out", "make a new table")]
)
def test_sorting_column_that_would_become_optional_is_refused_with_the_remedy(deletes: str, remedy: str) -> None:
    server = cast(ClickHouseServer, SimpleNamespace(rows=lambda _: [{"type": "Nullable(Int64)"}]))
    optional = Column("id", "Nullable(Int64)", "Nullable(Int64)", pa.int64(), True, False)
    layout = replace(_layout("append", deletes=deletes), columns=(optional,))
    with pytest.raises(SchemaRefused, match="make id optional") as refused:
        plan_changes(server, layout, _there("MergeTree"))
    assert remedy in refused.value.remedy


def _described(*columns: tuple[str, str, str, str]) -> Present:
    """A table with these columns: name, type, default kind and expression."""
    row = {
        **dict.fromkeys(("id", "engine_full", "statement", "sorting_key", "partition_key"), ""),
        "engine": "MergeTree",
        "rows": 5,
        "views": [],
        "columns": [(name, kind, 0, name == "id", *default) for name, kind, *default in columns],
    }
    server = cast(ClickHouseServer, SimpleNamespace(rows=lambda *_: [row]))
    present = describe(server, ("air", "flights"))
    assert present
    return present


OURS_HIDDEN = (("_topic_id", "LowCardinality(String)", "MATERIALIZED", "''"), ("_step", "UInt64", "MATERIALIZED", "0"))


@pytest.mark.parametrize("expression", ["ALIAS toDateTime64(id, 6)", "MATERIALIZED toDateTime64(id, 6)"])
def test_columns_that_the_table_computes_take_no_values(expression: str) -> None:
    kind, _, value = expression.partition(" ")
    present = _described(("id", "Int64", "", ""), ("at", INSTANT, kind, value), *OURS_HIDDEN)
    assert list(present.types) == ["id", "_topic_id", "_step"], "inserts give ours their values"
    assert (present.computed, sorted(present.sorting_columns)) == ({"at": expression}, ["id"])
    with pytest.raises(SchemaRefused, match="at is") as refused:
        plan_changes(cast(ClickHouseServer, None), _layout("append"), present)
    assert f"at is {expression}" in refused.value.what


def test_columns_with_a_default_take_values() -> None:
    coordinates = [(c.name, c.type, "", "") for c in _layout("append").columns if c.name.startswith("_")]
    present = _described(("id", "Int64", "", ""), ("at", INSTANT, "DEFAULT", "now()"), *coordinates, *OURS_HIDDEN)
    assert plan_changes(cast(ClickHouseServer, None), _layout("append"), present) == []


@pytest.mark.parametrize(
    ("named", "spelled"),
    [
        ("decimal(10,2)", "Decimal(10, 2)"),
        ("Nullable(NUMERIC( 10, 2 ))", "Decimal(10, 2)"),
        ("DEC", "Decimal(10, 0)"),
        ("Decimal64(4)", "Decimal(18, 4)"),
        ("int(11)", "Int32"),
        ("BigInt Unsigned", "UInt64"),
        ("double  precision", "Float64"),
        ("TIMESTAMP('UTC')", "DateTime('UTC')"),
        ("TIMESTAMP(6)", "DateTime64(6)"),
        ("datetime(3, 'UTC')", "DateTime64(3, 'UTC')"),
        ("DateTime(0)", "DateTime(0)"),
        ("LowCardinality(Nullable(varchar(20)))", "String"),
        ("national char varying", "String"),
        ("BINARY(4)", "FixedString(4)"),
        ("json", "JSON"),
        ("Enum8('a, b' = 1, ')' = 2)", "Enum8('a, b' = 1, ')' = 2)"),
        ("IntervalDay", "IntervalDay"),
        ("Nullable()", "Nullable"),
    ],
)
def test_types_have_one_spelling(named: str, spelled: str) -> None:
    assert bare(named) == spelled


@pytest.mark.parametrize(
    ("declared", "named", "asked"),
    [
        ("string not null", r"Enum8('a, b' = 1, 'c\'' = 2)", r"isNull(`x`) OR `x` NOT IN ('a, b', 'c\'')"),
        ("string", "Nullable(ENUM('it''s', ')'))", "`x` NOT IN ('it''s', ')')"),
        ("string", "Nullable(UUID)", "NOT (isNull(`x`) OR isNotNull(accurateCastOrNull(`x`, 'UUID')))"),
    ],
)
def test_texts_that_are_no_names_of_an_enum_are_found(declared: str, named: str, asked: str) -> None:
    kind, nullable = parse_type(declared)
    column = table_column(RowColumn("x", kind, nullable, ("value", "x")), {"x": named})
    assert render("clickhouse", "unfit", column=column, number="n").split("WHERE ")[1].strip() == asked
    numbers = table_column(RowColumn("x", pa.int64(), nullable, ("value", "x")), {"x": named})
    assert numbers.enum_names == []


@pytest.mark.parametrize(
    ("declared", "named", "check", "compared"),
    [
        ("string", "String", "", ""),
        ("string", "Nullable(TEXT)", "", ""),
        ("string", "INTEGER", "integer text", ""),
        ("string", "NUMERIC(10, 2)", "decimal text", ""),
        ("string", "timestamp", "time text", ""),
        ("string", "UUID", "", ""),
        ("string", "LowCardinality(Nullable(UUID))", "not null", ""),
        ("string", "Enum8('a' = 1)", "text", ""),
        ("string", "Nullable(DOUBLE)", "float text", ""),
        ("double", "double", "", ""),
        ("long", "UInt8", "back", "Nullable(Int64)"),
        ("struct<a: long, b: string>", "Tuple(a Int8, b String)", "back as text",
         "Tuple(a Nullable(Int64), b Nullable(String))"),
        ("struct<a: string, b: double, c: decimal(9,2)>", "Tuple(a JSON, b Float64, c float)", "back as text",
         "Tuple(b Nullable(Float64))"),
        ("array<struct<a: string, b: long>>", "Nested(a json, b Int8)", "back as text",
         "Array(Tuple(b Nullable(Int64)))"),
        ("map<string,map<string,long>>", "Map(String, Map(String, Dynamic))", "", ""),
        ("struct<a: long, b: string>", "JSON", "", ""),
    ],
)  # fmt: skip
def test_conversions_are_checked_by_type_and_not_by_spelling(
    declared: str, named: str, check: str, compared: str
) -> None:
    kind, nullable = parse_type(declared)
    column = table_column(RowColumn("c", kind, nullable, ("value", "c")), {"c": named})
    assert (column.check, column.compared) == (check, compared)


@pytest.mark.parametrize(("named", "wanted"), [("Array(Int32)", "array<…>"), ("Map(String, Int8)", "map<…>")])
def test_text_is_not_read_as_a_collection(named: str, wanted: str) -> None:
    """Its parser lets numbers inside overflow."""
    table = specs.table("clickhouse", column_types={"name": named})
    with pytest.raises(ValueError, match=rf"name is text, .* declare it as {wanted}"):
        specs.spec(table, columns={"name": "string"})
