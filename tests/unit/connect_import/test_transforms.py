"""Chains of transforms become envelopes and statements that the pipeline's own rules accept."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import yaml

from jobs.connect_import.building import Imported, build
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.known import KnownTable
from jobs.connect_import.writing import pipeline_file, report
from jobs.evolution import AddColumn, plan_evolution
from jobs.schema.types import parse_columns
from jobs.spec.columns import row_columns
from jobs.spec.members import expand
from jobs.spec.pipeline import PipelineSpec
from resources.errors import ConfigurationError
from tests.kit.connectors import CASES, COLUMNS, ICEBERG, JSON, KAFKA, chain

TABULAR = {**ICEBERG, "connector.class": "io.tabular.iceberg.connect.IcebergSinkConnector"}
BIGQUERY = {
    "connector.class": "com.wepay.kafka.connect.bigquery.BigQuerySinkConnector",
    "topics": "pg.public.orders,pg.public.lines",
    "project": "p",
    "defaultDataset": "d",
    "keyfile": "/k.json",
    "kafkaKeyFieldName": "key",
    "upsertEnabled": "true",
    "deleteEnabled": "true",
    "key.converter": "io.confluent.connect.avro.AvroConverter",
    "key.converter.schema.registry.url": "http://r",
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.schema.registry.url": "http://r",
}
CLICKHOUSE = {
    "connector.class": "com.clickhouse.kafka.connect.ClickHouseSinkConnector",
    "topics": "raw-orders,raw-lines",
    "hostname": "ch",
    "database": "shop",
    "errors.tolerance": "all",
    **JSON,
}


def made(options: dict[str, str], columns: dict[str, str] | None = None, **more: Any) -> tuple[Imported, PipelineSpec]:
    """The pipeline, read again from its text."""
    imported = build(Configuration("sink", options), columns, **more)
    spec = PipelineSpec.model_validate(yaml.safe_load(pipeline_file(imported))["attributes"])
    assert len(imported.steps) == len(options.get("transforms", ",").split(",")) or "transforms" not in options
    assert all(step in "\n".join(report(imported)) for step in imported.steps)
    return imported, spec


UNWRAP = (
    "io.debezium.transforms.ExtractNewRecordState",
    {"add.fields": "op,lsn,source.ts_ms", "delete.tombstone.handling.mode": "tombstone"},
)
REWRITING = (UNWRAP[0], {"delete.tombstone.handling.mode": "rewrite"})


def test_unwrapped_debezium_into_tabulars_sink() -> None:
    options = {
        **TABULAR,
        **chain(UNWRAP),
        "iceberg.tables.cdc-field": "__op",
        "iceberg.tables.default-id-columns": "id",
    }
    columns = {"id": "long", "name": "string", "__op": "string", "__lsn": "long", "__source_ts_ms": "long"}
    imported, spec = made(options, known={"db.t": KnownTable(columns)})
    last = ["source.value.envelope", "changes.order_by"]
    assert [line.split(":")[0] for line in imported.todo] == ["__op", *last]
    envelope = spec.source.value.envelope
    assert envelope is not None
    assert (envelope.kind, envelope.metadata) == (
        "debezium",
        {"__lsn": "source.lsn", "__source_ts_ms": "source.ts_ms", "_op": "op"},
    )
    assert set(spec.source.value.columns) == {"id", "name", "_op", "__lsn", "__source_ts_ms"}
    assert spec.source.transform is None
    assert spec.changes.op is not None
    assert (spec.changes.op.field, spec.changes.op.keep, spec.tables[0].mode) == ("_op", False, "upsert_delete")
    # Nothing but the configuration is known: the file loads all the same, and says what is to be done.
    imported, spec = made(options)
    assert set(spec.source.value.columns) == {"id", "fill_in", "_op", "__lsn", "__source_ts_ms"}
    declare = ["source.value.columns.id", "source.value.columns"]
    assert [line.split(":")[0] for line in imported.todo] == ["__op", *declare, *last]


def test_types_of_the_sources_position() -> None:
    unwrap = (UNWRAP[0], {"add.fields": "txId,event_serial_no,ord,table"})
    _, spec = made({**TABULAR, **chain(unwrap)}, {"id": "long"})
    kinds = {c.removeprefix("__"): kind for c, kind in spec.source.value.columns.items() if c.startswith("__")}
    assert kinds == {"txId": "long", "event_serial_no": "long", "ord": "long", "table": "string"}


def placed(spec: PipelineSpec) -> dict[str, str]:
    """Topic to table, where each topic has its own."""
    return {m.key: m.spec.tables[0].table for m in expand("sink", spec, spec.source.topics).members}


def test_unwrapped_debezium_into_bigquery_that_upserts_and_deletes() -> None:
    imported, spec = made({**BIGQUERY, **chain(UNWRAP)}, COLUMNS, key_columns={"id": "long"})
    assert placed(spec) == {"pg.public.orders": "d.pg_public_orders", "pg.public.lines": "d.pg_public_lines"}
    assert {t.mode for t in spec.tables} == {"upsert_delete"}
    assert spec.source.value.envelope is not None
    assert (spec.source.value.format, spec.source.value.registry) == ("avro", "registry")
    dropping = (UNWRAP[0], {"delete.tombstone.handling.mode": "drop"})
    _, spec = made({**BIGQUERY, **chain(dropping)}, COLUMNS, key_columns={"id": "long"})
    assert {t.mode for t in spec.tables} == {"upsert"}
    assert [line.split(":")[0] for line in imported.todo] == ["__op"]


def test_unwrapped_debezium_into_clickhouse_under_names_without_prefix() -> None:
    route = (KAFKA + "RegexRouter", {"regex": "raw-(.*)", "replacement": "$1"})
    _, spec = made({**CLICKHOUSE, **chain(REWRITING, route)}, COLUMNS)
    assert placed(spec) == {"raw-orders": "shop.orders", "raw-lines": "shop.lines"}
    assert spec.source.value.envelope is not None
    (table,) = spec.tables
    assert (table.mode, table.deletes, table.metadata_columns[0]) == ("append", "rows", "op")
    _, spec = made({**CLICKHOUSE, **chain(UNWRAP, route)}, COLUMNS)
    assert spec.tables[0].deletes == "leave_out"


UPSERTING = {**TABULAR, "iceberg.tables.upsert-mode-enabled": "true", "iceberg.tables.default-id-columns": "id"}


@pytest.mark.parametrize("step", [REWRITING, ("io.tabular.iceberg.connect.transforms.DebeziumTransform", {})])
def test_deleted_rows_stay_in_a_table_that_is_upserted(step: tuple[str, dict[str, str]]) -> None:
    """As rows that say so; only the key of a delete is there for certain."""
    required = {"id": "long not null", "name": "string not null"}
    imported, spec = made({**UPSERTING, **chain(step)}, known={"db.t": KnownTable(required, key=["id"])})
    (table,) = spec.tables
    assert (table.mode, table.deletes, table.metadata_columns) == ("upsert", "rows", ["op"])
    assert table.evolve.relax_required
    assert [(c.name, c.nullable) for c in row_columns(spec, table)] == [("id", False), ("name", True), ("_op", True)]
    (line,) = (line for line in imported.todo if "deletes: rows" in line)
    assert line.endswith("adds `_op` and makes name optional")
    only_key = {"id": "long not null", "name": "string"}
    imported, spec = made({**UPSERTING, **chain(step)}, known={"db.t": KnownTable(only_key, key=["id"])})
    assert (spec.tables[0].deletes, spec.tables[0].evolve.relax_required) == ("rows", False)
    assert any(line.endswith("the first run adds `_op`") for line in imported.todo)
    two = KnownTable({"id": "long not null", "day": "date not null"}, key=["id", "day"])
    imported, spec = made({**UPSERTING, **chain(step)}, known={"db.t": two})
    assert spec.tables[0].deletes == "leave_out", "the sink's key is `id` alone, and `day` may be missing"
    assert any("no run can make day optional" in line for line in imported.todo)


@pytest.mark.parametrize(
    ("handling", "mode", "deletes"),
    [
        ({"delete.tombstone.handling.mode": "rewrite"}, "upsert", "rows"),
        ({"delete.handling.mode": "rewrite"}, "upsert", "rows"),
        ({"delete.handling.mode": "rewrite", "drop.tombstones": "false"}, "upsert_delete", "leave_out"),
        ({"delete.tombstone.handling.mode": "rewrite-with-tombstone"}, "upsert_delete", "leave_out"),
    ],
)
def test_deleted_rows_stay_in_bigquery_where_no_tombstone_removes_them(
    handling: dict[str, str], mode: str, deletes: str
) -> None:
    imported, spec = made({**BIGQUERY, **chain((UNWRAP[0], handling))}, COLUMNS, key_columns={"id": "long"})
    assert [(t.mode, t.deletes, "op" in t.metadata_columns) for t in spec.tables] == [(mode, deletes, mode == "upsert")]
    assert any("deletes: rows" in line for line in imported.todo) is (mode == "upsert")


@pytest.mark.parametrize(
    ("handling", "mode", "asks"),
    [
        ({}, "upsert_delete", True),
        ({"drop.tombstones": "true"}, "upsert", False),
        ({"drop.tombstones": "false"}, "upsert_delete", False),
        ({"delete.handling.mode": "drop"}, "upsert", False),
        ({"delete.handling.mode": "none"}, "upsert_delete", False),
        ({"delete.handling.mode": "none", "drop.tombstones": "true"}, "upsert_delete", False),
        ({"delete.tombstone.handling.mode": "tombstone"}, "upsert_delete", False),
    ],
)
def test_deletes_that_debezium_keeps_from_the_sink(handling: dict[str, str], mode: str, asks: bool) -> None:
    imported, spec = made({**BIGQUERY, **chain((UNWRAP[0], handling))}, COLUMNS, key_columns={"id": "long"})
    assert {t.mode for t in spec.tables} == {mode}
    assert any("older versions of Debezium left deletes out" in line for line in imported.todo) is asks


INSERTING = {**BIGQUERY, "upsertEnabled": "false", "deleteEnabled": "false"}


@pytest.mark.parametrize(
    ("options", "tables"),
    [
        (TABULAR, ["db.t"]),
        ({**INSERTING, "topics": "pg.public.orders"}, ["d.pg_public_orders"]),
        (INSERTING, ["d.pg_public_orders", "d.pg_public_lines"]),
    ],
)
def test_tables_whose_rows_say_that_they_are_deleted_go_on(options: dict[str, str], tables: list[str]) -> None:
    columns = {"id": "long", "n": "string", "__deleted": "string"}
    imported, spec = made({**options, **chain(REWRITING)}, known=dict.fromkeys(tables, KnownTable(columns)))
    assert any(line.startswith("__deleted: ExtractNewRecordState filled it") for line in imported.todo)
    single = expand("sink", spec, spec.source.topics).members if spec.source.for_each else ()
    for one in [member.spec for member in single] or [spec]:
        assert one.tables[0].deletes == "rows"
        assert one.source.row.keys() == {"id", "n", "_op"}
        assert one.source.transform is None


def test_tabulars_own_debezium_transform_routes_by_its_target() -> None:
    own = ("io.tabular.iceberg.connect.transforms.DebeziumTransform", {"cdc.target.pattern": "lake.{db}_{table}"})
    options = {
        **TABULAR,
        **chain(own),
        "iceberg.tables": "",
        "iceberg.tables.dynamic-enabled": "true",
        "iceberg.tables.route-field": "_cdc.target",
        "iceberg.tables.cdc-field": "_cdc.op",
        "iceberg.tables.default-id-columns": "id",
    }
    columns = {"id": "long", "name": "string", "_cdc": "struct<op: string, ts: timestamp>"}
    known = dict.fromkeys(["lake.public_a", "lake.public_b"], KnownTable(columns))
    imported, spec = made(options, tables=list(known), known=known)
    wanted = ["_cdc_target", "_cdc", "source.value.envelope", "changes.order_by"]
    assert [line.split(":")[0] for line in imported.todo] == wanted
    assert all(table.evolve.add_columns for table in spec.tables)
    assert spec.route_by == "_cdc_target"
    assert set(spec.source.row) == {"id", "name", "_op", "_cdc_target"}
    assert spec.changes.op is not None
    assert (spec.changes.op.field, spec.changes.op.keep) == ("_op", False)


@pytest.mark.parametrize(("kind", "envelope"), [("DebeziumTransform", "debezium"), ("DmsTransform", "dms")])
def test_log_of_changes_in_a_table_that_is_appended_to(kind: str, envelope: str) -> None:
    options = {**ICEBERG, **chain((f"org.apache.iceberg.connect.transforms.{kind}", {}))}
    columns = {"id": "long", "_cdc": "struct<op: string, ts: timestamp>"}
    imported, spec = made(options, known={"db.t": KnownTable(columns)})
    assert (spec.source.transform, spec.tables[0].mode, spec.tables[0].deletes) == (None, "append", "rows")
    assert [column.name for column in row_columns(spec, spec.tables[0])] == [
        "id",
        "_topic",
        "_partition",
        "_offset",
        "_op",
    ]
    assert spec.source.value.envelope is not None
    assert (spec.source.value.envelope.kind, spec.source.value.columns) == (
        envelope,
        {"id": "long", "_op": "string"},
    )
    assert [line.split(":")[0] for line in imported.todo] == ["db.t", "_cdc", "source.value.envelope"]


SMT = "io.tabular.iceberg.connect.transforms."
MONGO: tuple[str, dict[str, str]] = (SMT + "MongoDebeziumTransform", {})
OF_DEBEZIUM: tuple[str, dict[str, str]] = (SMT + "DebeziumTransform", {})


@pytest.mark.parametrize("schemas", ["true", "false"])
@pytest.mark.parametrize("steps", [[MONGO], [MONGO, OF_DEBEZIUM]])
def test_documents_of_mongodb_stay_in_their_envelope(steps: list[tuple[str, dict[str, str]]], schemas: str) -> None:
    """MongoDebeziumTransform only prepares records for DebeziumTransform: their `after` is text."""
    cdc = {"iceberg.tables.cdc-field": "_cdc.op", "iceberg.tables.default-id-columns": "_id"}
    options = {**TABULAR, **cdc, "value.converter.schemas.enable": schemas, **chain(*steps)}
    imported, spec = made(options, {"_id": "string", "name": "string"})
    envelope = spec.source.value.envelope
    assert envelope is not None
    assert (envelope.kind, spec.source.value.convert) == ("mongo", "exact")
    assert not any(line.startswith("source.value.envelope: say how") for line in imported.todo)
    assert any("change_streams_update_full" in line for line in imported.todo)
    assert any("alone it left" in line for line in imported.todo) is (len(steps) == 1)


def test_tables_of_mongodb_are_named_by_the_collection() -> None:
    dynamic = {"iceberg.tables": "", "iceberg.tables.dynamic-enabled": "true"}
    routed = {**TABULAR, **dynamic, "iceberg.tables.route-field": "_cdc.target", **chain(MONGO, OF_DEBEZIUM)}
    routed["iceberg.tables.upsert-mode-enabled"] = "true"
    _, spec = made({**routed, "iceberg.tables.default-id-columns": "_id"}, {"_id": "string"}, tables=["db.a"])
    assert spec.source.value.envelope is not None
    assert spec.source.value.envelope.metadata["_cdc_table"] == "source.collection"
    imported, spec = made(routed, {"_id": "string"})
    assert spec.source.key is not None
    assert any(line.startswith("source.key: ") and "envelope: mongo" in line for line in imported.todo)


REWRITE = (UNWRAP[0], {"delete.tombstone.handling.mode": "rewrite"})


@pytest.mark.parametrize("kind", ["long", "long not null", "struct<a: long not null>"])
def test_log_of_changes_in_a_table_with_required_columns(kind: str) -> None:
    there = {"id": "long", "n": kind}
    imported, spec = made({**ICEBERG, **chain(REWRITE)}, known={"db.t": KnownTable(there)})
    (table,) = spec.tables
    wanted = pa.schema([pa.field(c.name, c.type, c.nullable) for c in row_columns(spec, table)])
    changes = plan_evolution("db.t", parse_columns(there), wanted, table.evolve)
    assert AddColumn(("_op",), pa.string()) in changes
    assert table.evolve.relax_required is (kind != "long")
    assert not table.evolve.widen_types
    assert spec.source.value.unknown_fields == "ignore"
    (line,) = (line for line in imported.todo if line.startswith("db.t"))
    assert ("makes n optional" in line) is (kind != "long")


def test_log_of_changes_in_a_table_that_nobody_looked_at() -> None:
    imported, spec = made({**ICEBERG, **chain(REWRITE)}, {"id": "long not null"})
    (table,) = spec.tables
    assert (table.evolve.add_columns, table.evolve.relax_required, table.evolve.widen_types) == (True, True, False)
    assert spec.source.value.unknown_fields == "ignore"
    assert any(line.startswith("db.t: ") for line in imported.todo)


@pytest.mark.parametrize(
    "table", [KnownTable({"id": "long not null"}, key=["id"]), KnownTable({"id": "long not null"}, fixed=["id"])]
)
def test_log_of_changes_in_a_table_whose_columns_stay_required(table: KnownTable) -> None:
    known = {"shop.a": table, "shop.b": KnownTable({"id": "long"}, fixed=["id"])}
    imported, spec = made({**CLICKHOUSE, "topics": "a,b", **chain(REWRITE)}, known=known)
    tables = [member.spec.tables[0] for member in expand("sink", spec, ["a", "b"]).members]
    assert {(table.deletes, "op" in table.metadata_columns) for table in tables} == {("leave_out", False)}
    assert not any(table.evolve.relax_required for table in tables)
    (line,) = (line for line in imported.todo if "deletes: rows" in line)
    assert "no run can make id optional" in line


def test_tables_of_topics_are_logs_as_their_template() -> None:
    known = {"d.orders": KnownTable({"id": "long not null"}), "d.lines": KnownTable({"n": "long", "_op": "string"})}
    options = {**BIGQUERY, "topics": "orders,lines", "kafkaDataFieldName": "kafka", **chain(REWRITE)}
    for name in ("upsertEnabled", "deleteEnabled"):
        options[name] = "false"
    _, spec = made(options, known=known)
    tables = {m.key: m.spec.tables[0] for m in expand("sink", spec, ["orders", "lines"]).members}
    assert {table.deletes for table in tables.values()} == {"rows"}
    assert all("op" in table.metadata_columns for table in tables.values())
    evolve = {topic: (table.evolve.add_columns, table.evolve.relax_required) for topic, table in tables.items()}
    assert evolve["orders"] == (True, True)


def test_tables_of_topics_leave_deletes_out_as_their_template() -> None:
    dropping = (UNWRAP[0], {"delete.tombstone.handling.mode": "drop"})
    known = dict.fromkeys(["d.pg_public_orders", "d.pg_public_lines"], KnownTable({"id": "long", "n": "long"}))
    _, spec = made({**BIGQUERY, **chain(dropping)}, known=known, key_columns={"id": "long"})
    topics = BIGQUERY["topics"].split(",")
    assert {member.spec.tables[0].mode for member in expand("sink", spec, topics).members} == {"upsert"}


def test_several_unwrapping_transforms_make_one_log() -> None:
    """As with predicates, one for each kind of topic."""
    _, spec = made({**ICEBERG, **chain(REWRITE, REWRITE)}, COLUMNS)
    assert (spec.tables[0].deletes, spec.tables[0].metadata_columns) == ("rows", ["topic", "partition", "offset", "op"])


def test_records_with_an_operation_inside_a_struct() -> None:
    options = {**TABULAR, "iceberg.tables.cdc-field": "_cdc.op", "iceberg.tables.default-id-columns": "id"}
    _, spec = made(options, {"id": "long", "_cdc": "struct<op: string>"})
    assert spec.source.transform is not None
    assert spec.source.transform.sql.startswith("select *, case upper(left(trim(`_cdc`.`op`), 1)) when 'U' then 'u' ")
    assert spec.changes.op is not None
    assert spec.changes.op.field == "_op"


@pytest.mark.parametrize("case", CASES)
def test_statement(case: str) -> None:
    options, row, sql = CASES[case]
    imported, spec = made({**ICEBERG, **options}, COLUMNS)
    assert imported.todo == []
    assert (spec.source.transform.sql if spec.source.transform else None) == sql
    assert dict(spec.source.row) == row


ISO = (
    "date_format(`at`, case when unix_millis(`at`) % 86400000 = 0 then 'yyyy-MM-dd' "
    "else 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSS\\'Z\\'' end)"
)


@pytest.mark.parametrize(
    ("kind", "target", "expression"),
    [
        ("timestamp", "int64", "cast(unix_millis(`at`) as long)"),
        ("date", "int32", "cast(unix_date(`at`) as int)"),
        ("timestamp not null", "string", ISO),
        ("date", "string", "cast(`at` as string)"),
        ("long", "string", "cast(`at` as string)"),
    ],
)
def test_times_are_cast_as_connect_casts_them(kind: str, target: str, expression: str) -> None:
    """To milliseconds, days, or ISO text; Spark's casts give seconds, nothing, and text with a space."""
    casts = {**ICEBERG, **chain((KAFKA + "Cast$Value", {"spec": f"at:{target}"}))}
    _, spec = made(casts, {"id": "long", "at": kind})
    assert spec.source.transform is not None
    assert spec.source.transform.sql == f"select * except (`at`), {expression} as `at` from records"
    wanted = {"int64": "long", "int32": "int"}.get(target, target)
    imported, _ = made(casts, known={"db.t": KnownTable({"id": "long", "at": wanted})})
    (line,) = (line for line in imported.todo if "to which the sink casts it" in line)
    of_times = {"string": ISO}.get(target, f"cast(unix_millis(`at`) as {wanted})")
    assert f"cast(`at` as {wanted}), of times {of_times}" in line


@pytest.mark.parametrize(
    ("schemas", "target", "expression"),
    [
        ("false", "int64", "cast(unix_millis(_timestamp) as long)"),
        ("true", "int64", "cast(unix_millis(_timestamp) as long)"),
        ("false", "string", "cast(unix_millis(_timestamp) as string)"),
        ("true", "string", ISO.replace("`at`", "_timestamp")),
    ],
)
def test_the_records_own_time_is_cast_from_milliseconds(schemas: str, target: str, expression: str) -> None:
    """Connect inserts it as a time only where records have a schema, else as a number."""
    steps = (KAFKA + "InsertField$Value", {"timestamp.field": "at"}), (KAFKA + "Cast$Value", {"spec": f"at:{target}"})
    options = {**ICEBERG, **chain(*steps), "value.converter.schemas.enable": schemas}
    known = {"db.t": KnownTable({"id": "long", "at": {"int64": "long"}.get(target, target)})}
    for _, spec in (made(options, {"id": "long"}), made(options, known=known)):
        assert spec.source.transform is not None
        assert spec.source.transform.sql == f"select *, {expression} as `at` from records"


OPEN = {
    "connector.class": "com.wepay.kafka.connect.bigquery.BigQuerySinkConnector",
    "topics": "orders",
    "project": "p",
    "defaultDataset": "shop",
    "timePartitioningType": "NONE",
    "autoCreateTables": "true",
    "allowNewBigQueryFields": "true",
    **JSON,
}
KNOWN = {"known": {"shop.orders": KnownTable({"id": "long", "name": "string"})}}
REPLACE = KAFKA + "ReplaceField$Value"
WITHOUT = (REPLACE, {"exclude": "ssn,card"})
ONLY = (REPLACE, {"include": "id,name"})
GUESSED = ["source.value.columns.id", "source.value.columns.name"]


@pytest.mark.parametrize(
    ("steps", "more", "value", "todo"),
    [
        ([WITHOUT], {}, ([], ["ssn", "card"], "add"), []),
        ([WITHOUT], {"columns": {"id": "long", "ssn": "string"}}, (["id"], ["ssn", "card"], "add"), []),
        ([WITHOUT], KNOWN, (["id", "name"], ["ssn", "card"], "add"), []),
        ([("io.debezium.transforms.ExtractNewRecordState", {}), WITHOUT], {},
         (["_op"], ["ssn", "card"], "add"), ["source.value.envelope"]),
        ([(REPLACE, {"renames": "ssn:number"}), (REPLACE, {"exclude": "number"})], {},
         ([], ["number", "ssn"], "add"), []),
        ([(KAFKA + "HeaderFrom$Value", {"fields": "ssn", "headers": "h", "operation": "move"})], {},
         ([], ["ssn"], "add"), []),
        ([(REPLACE, {"exclude": "a.b"})], {}, ([], ["a.b"], "add"), ["source.value.exclude"]),
        ([WITHOUT, (KAFKA + "MaskField$Value", {"fields": "ssn"})], {"columns": {"id": "long", "ssn": "string"}},
         (["id"], ["ssn", "card"], "add"), ["ssn"]),
        ([ONLY], {}, (["id", "name"], [], "ignore"), GUESSED),
        ([ONLY], KNOWN, (["id", "name"], [], "ignore"), []),
        ([ONLY], {"columns": {"id": "long", "ssn": "string"}}, (["id", "name"], [], "ignore"), GUESSED[1:]),
    ],
)  # fmt: skip
def test_fields_that_are_left_out_do_not_land(
    steps: list[tuple[str, dict[str, str]]],
    more: dict[str, Any],
    value: tuple[list[str], list[str], str],
    todo: list[str],
) -> None:
    imported, spec = made({**OPEN, **chain(*steps)}, **more)
    found = spec.source.value
    assert (list(found.columns), found.exclude, found.unknown_fields) == value
    assert [line.split(":")[0] for line in imported.todo] == todo


PREDICATES = KAFKA + "predicates."
TOMBSTONES = {"type": PREDICATES + "RecordIsTombstone"}
OF_TOPIC = {"type": PREDICATES + "TopicNameMatches", "pattern": "new_.*"}
OWN = {"type": "com.acme.IsInternal"}
NEW_NAME = (KAFKA + "RegexRouter", {"regex": "(.*)", "replacement": "new_$1"})
RENAMED = "case when _topic rlike '^(?:(.*))$' then regexp_replace(_topic, '^(?:(.*))', 'new_$1') else _topic end"
DEBEZIUM_FILTER = ("io.debezium.transforms.Filter", {"language": "jsr223.groovy", "condition": "value.op == 'u'"})
CONFLUENT_FILTER = ("io.confluent.connect.transforms.Filter$Value", {"filter.condition": "$[?(@.id > 5)]"})
UNWRAP_ALONE = "io.debezium.transforms.ExtractNewRecordState"
KEEPING = (UNWRAP_ALONE, {"delete.tombstone.handling.mode": "tombstone"})


def under(kind: str, options: dict[str, str], negated: str = "false") -> tuple[str, dict[str, str]]:
    """A transform under the predicate `p`."""
    return kind, {**options, "predicate": "p", "negate": negated}


def predicate(options: dict[str, str]) -> dict[str, str]:
    return {"predicates": "p", **{f"predicates.p.{name}": text for name, text in options.items()}}


@pytest.mark.parametrize(
    ("given", "steps", "sql", "todo"),
    [
        (OWN, [under(KAFKA + "Filter", {})], None, ["Filter"]),
        (TOMBSTONES, [under(*DEBEZIUM_FILTER, "true")], None, ["Filter"]),
        (OF_TOPIC, [under(*CONFLUENT_FILTER)], None, ["Filter"]),
        (OWN, [under(KAFKA + "MaskField$Value", {"fields": "name"})],
         "select * except (`name`), case when `name` is not null then '' end as `name` from records", ["s0"]),
        (TOMBSTONES, [under(KAFKA + "MaskField$Value", {"fields": "name"})], None, []),
        (TOMBSTONES, [under(KAFKA + "Filter", {}, "true")], "select * from records where false", []),
        (OF_TOPIC, [under(UNWRAP_ALONE, {})], None, ["s0", "source.value.envelope"]),
        (TOMBSTONES, [under(UNWRAP_ALONE, {}, "true")], None, ["source.value.envelope"]),
        (OF_TOPIC, [under(REPLACE, {"exclude": "new"})],
         "select * except (`new`), case when (_topic rlike '^(?:new_.*)$') then null else `new` end as `new` "
         "from records", ["source.value.columns.new"]),
        (OF_TOPIC, [NEW_NAME, (KAFKA + "InsertField$Value", {"topic.field": "topic"}), under(KAFKA + "Filter", {})],
         f"select *, {RENAMED} as `topic` from records where not ({RENAMED} rlike '^(?:new_.*)$')", []),
        (OF_TOPIC, [(KAFKA + "TimestampRouter", {}), under(KAFKA + "Filter", {})],
         "select * from records where not (_topic rlike '^(?:new_.*)$')", ["TimestampRouter", "_topic"]),
        ({"type": PREDICATES + "HasHeaderKey", "name": "a"}, [under(*NEW_NAME)], None, ["s0"]),
        (OF_TOPIC, [(KAFKA + "MaskField$Value", {"fields": "name"}), (UNWRAP_ALONE, {})], None,
         ["MaskField", "source.value.envelope"]),
    ],
)  # fmt: skip
def test_predicates_and_what_they_ask_after_other_transforms(
    given: dict[str, str], steps: list[tuple[str, dict[str, str]]], sql: str | None, todo: list[str]
) -> None:
    imported, spec = made({**ICEBERG, **chain(*steps), **predicate(given)}, {"id": "long", "name": "string"})
    assert (spec.source.transform.sql if spec.source.transform else None) == sql
    assert [line.split(":")[0] for line in imported.todo] == todo


@pytest.mark.parametrize(
    ("options", "given", "steps", "mode", "todo"),
    [
        ({}, TOMBSTONES, [under(KAFKA + "Filter", {})], "upsert", []),
        ({"upsertEnabled": "false"}, TOMBSTONES, [under(KAFKA + "Filter", {})], "append", []),
        ({}, TOMBSTONES, [under(KAFKA + "Filter", {}), KEEPING], "upsert_delete", []),
        ({}, OF_TOPIC, [under(KAFKA + "Filter", {})], "upsert_delete", ["s0"]),
        ({}, TOMBSTONES, [under(*CONFLUENT_FILTER, "true")], "upsert_delete", ["Filter"]),
        ({}, TOMBSTONES, [under(*CONFLUENT_FILTER)], "upsert_delete", ["Filter", "s0"]),
        ({"deleteEnabled": "false"}, OF_TOPIC, [under(KAFKA + "Filter", {})], "upsert", []),
    ],
)
def test_tombstones_that_the_sink_never_saw_delete_nothing(
    options: dict[str, str],
    given: dict[str, str],
    steps: list[tuple[str, dict[str, str]]],
    mode: str,
    todo: list[str],
) -> None:
    configured = {**BIGQUERY, **options, **chain(*steps), **predicate(given)}
    imported, spec = made(configured, COLUMNS, key_columns={"id": "long"})
    assert [t.mode for t in spec.tables] == [mode]
    assert [line.split(":")[0] for line in imported.todo] == todo


def test_flatten_and_extract_of_declared_structs() -> None:
    columns = {"after": "struct<id: long, geo: struct<lat: double, lon: double>>"}
    options = chain((KAFKA + "ExtractField$Value", {"field": "after"}), (KAFKA + "Flatten$Value", {"delimiter": "_"}))
    _, spec = made({**ICEBERG, **options}, columns)
    assert dict(spec.source.row) == {"id": "long", "geo": "struct<lat: double, lon: double>"}
    _, spec = made({**ICEBERG, **chain((KAFKA + "Flatten$Value", {"delimiter": "_"}))}, columns)
    assert dict(spec.source.row) == {"after_id": "long", "after_geo_lat": "double", "after_geo_lon": "double"}


def test_extracted_field_has_the_columns_of_the_table() -> None:
    extract = (KAFKA + "ExtractField$Value", {"field": "payload"})
    rename = (KAFKA + "ReplaceField$Value", {"renames": "name:title"})
    columns = {"id": "long not null", "title": "string"}
    imported, spec = made({**ICEBERG, **chain(extract, rename)}, known={"db.t": KnownTable(columns)})
    assert imported.todo == []
    assert spec.source.value.columns == {"payload": "struct<`id`: long not null, `name`: string>"}
    assert spec.source.transform is not None
    assert spec.source.transform.sql == (
        "select `payload`.`id` as `id`, `payload`.`name` as `title` from records where `payload` is not null"
    )
    assert dict(spec.source.row) == columns


def test_a_cast_to_the_declared_type_has_to_be_looked_at() -> None:
    """The columns of the tables are what the sink has cast to; what records hold they do not say."""
    imported, spec = made(
        {**ICEBERG, **chain((KAFKA + "Cast$Value", {"spec": "id:int64"}))}, known={"db.t": KnownTable(COLUMNS)}
    )
    assert spec.source.transform is None
    assert [line.split(":")[0] for line in imported.todo] == ["id"]


@pytest.mark.parametrize(
    ("regex", "replacement", "table"),
    [
        ("(?<db>[^.]+)[.](?<table>.*)", "${table}_${db}", "shop.orders_pg"),
        (r"(?<=x)?pg\.(.*)", "$10", "shop.orders0"),
        (r"pg\.(.*)", r"\$1_$1", "shop.$1_orders"),
        ("pg[.](.*?)", "new_$1.", "shop.new_.orders"),
        ("other", "x", "shop.pg.orders"),
    ],
)
def test_topics_are_renamed_as_java_does_it(regex: str, replacement: str, table: str) -> None:
    router = (KAFKA + "RegexRouter", {"regex": regex, "replacement": replacement})
    imported = build(Configuration("sink", {**CLICKHOUSE, "topics": "pg.orders", **chain(router)}), COLUMNS)
    assert [one["table"] for one in imported.document["tables"]] == [table]


@pytest.mark.parametrize(
    ("regex", "replacement"), [(r"\p{Alpha}+", "x"), ("[a-z&&[^p]]+", "x"), ("(.*)", "$2"), ("(.*)", "${table}")]
)
def test_regular_expressions_that_only_java_reads_are_refused(regex: str, replacement: str) -> None:
    router = (KAFKA + "RegexRouter", {"regex": regex, "replacement": replacement})
    with pytest.raises(ConfigurationError) as refused:
        build(Configuration("sink", {**CLICKHOUSE, "topics": "pg.orders", **chain(router)}), COLUMNS)
    assert (refused.value.where, bool(refused.value.remedy)) == ("transforms.s0", True)


EXTRACT_KEY = (KAFKA + "ExtractField$Key", {"field": "id"})
PK = {"kafkaKeyFieldName": "pk", "key.converter": JSON["key.converter"]}


@pytest.mark.parametrize(
    ("steps", "options", "key_columns", "key", "todo"),
    [
        ([EXTRACT_KEY], PK, {"id": "long"}, ({"pk": "long"}, {"id": "pk"}, None), []),
        ([EXTRACT_KEY], PK, {"pk": "long"}, ({"pk": "long"}, {"id": "pk"}, None), []),
        ([EXTRACT_KEY], PK, {}, ({"pk": "string"}, {"id": "pk"}, None), ["source.key.columns.pk"]),
        ([EXTRACT_KEY], {"kafkaKeyFieldName": ""}, {"id": "long", "n": "int"}, ({"id": "long"}, {}, None), []),
        ([(KAFKA + "ReplaceField$Key", {"renames": "n:id"}), EXTRACT_KEY], PK, {},
         ({"pk": "string"}, {"n": "pk"}, None), ["source.key.columns.pk"]),
        ([(KAFKA + "ReplaceField$Key", {"renames": "id:nr"})], {"kafkaKeyFieldName": ""}, {"id": "long"},
         ({"nr": "long"}, {"id": "nr"}, None), []),
        ([(KAFKA + "ReplaceField$Key", {"renames": "id:nr", "exclude": "x"})], PK, {"id": "long"},
         ({"nr": "long"}, {}, "pk"), ["source.key.column", "s0"]),
        ([(KAFKA + "HoistField$Key", {"field": "id"})], PK, {"id": "long"}, ({"id": "long"}, {}, "pk"), ["s0"]),
    ],
)  # fmt: skip
def test_the_key_as_transforms_leave_it(
    steps: list[tuple[str, dict[str, str]]],
    options: dict[str, str],
    key_columns: dict[str, str],
    key: tuple[dict[str, str], dict[str, str], str | None],
    todo: list[str],
) -> None:
    configured = {**BIGQUERY, "topics": "t", **options, **chain(*steps)}
    imported, spec = made(configured, COLUMNS, key_columns=key_columns)
    assert spec.source.key is not None
    assert (dict(spec.source.key.columns), spec.source.key.rename, spec.source.key.column) == key
    assert spec.changes.key is not None
    assert spec.changes.key.columns == [key[2]] if key[2] else list(key[0])
    assert [line.split(":")[0] for line in imported.todo] == todo


def test_the_key_that_a_table_has_as_a_column() -> None:
    appends = {"upsertEnabled": "false", "deleteEnabled": "false", "topics": "orders"}
    known = {"d.orders": KnownTable({"pk": "long", "name": "string"})}
    _, spec = made({**BIGQUERY, **appends, **PK, **chain(EXTRACT_KEY)}, known=known)
    assert spec.source.key is not None
    assert (dict(spec.source.key.columns), spec.source.key.rename) == ({"pk": "long"}, {"id": "pk"})
    assert dict(spec.source.row) == {"name": "string", "pk": "long"}


def test_key_out_of_the_value() -> None:
    options = chain((KAFKA + "ValueToKey", {"fields": "id"}), (KAFKA + "ExtractField$Key", {"field": "id"}))
    imported, spec = made({**BIGQUERY, "topics": "t", **options}, COLUMNS)
    assert [line.split(":")[0] for line in imported.todo] == ["key", "changes.order_by"]
    assert spec.changes.key is not None
    assert (spec.changes.key.columns, spec.changes.key.source) == (["id"], "value")
    assert spec.changes.tombstones == "delete", "which is a bad record, as in the sink"
    steps = (under(KAFKA + "Filter", {}), (KAFKA + "ValueToKey", {"fields": "id"}))
    _, spec = made({**BIGQUERY, "topics": "t", **chain(*steps), **predicate(TOMBSTONES)}, COLUMNS)
    assert spec.changes.tombstones == "skip"


def test_what_has_no_equivalent_is_to_do_and_the_file_loads() -> None:
    options = chain(
        ("com.acme.Secret$Value", {}),
        ("io.confluent.connect.transforms.Filter$Value", {"filter.condition": "$[?(@.price > 5)]"}),
        ("io.confluent.connect.transforms.Filter$Key", {"filter.condition": "$[?(@.id > 5)]"}),
        (KAFKA + "TimestampRouter", {}),
        (KAFKA + "TimestampConverter$Value", {"field": "at", "target.type": "Timestamp"}),
        (KAFKA + "TimestampConverter$Value", {"field": "id", "target.type": "Timestamp", "unix.precision": "hours"}),
    )
    imported, spec = made({**ICEBERG, **options}, COLUMNS)
    todo = [line.split(":")[0].split(" ")[0] for line in imported.todo]
    assert todo == ["Secret", "Filter", "Filter", "TimestampRouter", "at", "TimestampConverter"]
    assert "$[?(@.price > 5)]:" in imported.todo[1]
    assert "$[?(@.id > 5)] of the record's key:" in imported.todo[2]
    assert spec.source.value.columns["at"] == "timestamp"


@pytest.mark.parametrize("side", ["$Key", "$Value"])
def test_topics_that_records_name(side: str) -> None:
    """By whichever side: no table of the file follows from the topic any more."""
    named = ("com.clickhouse.kafka.connect.transforms.ExtractTopic" + side, {"field": "tbl"})
    topic = (KAFKA + "InsertField$Value", {"topic.field": "topic"})
    imported, _ = made({**CLICKHOUSE, **chain(named, topic)}, COLUMNS)
    of_key = " of the record's key" if side == "$Key" else ""
    assert imported.todo[:2] == [
        f"ExtractTopic{of_key}: route_by the field",
        "_topic: ExtractTopic had changed it before another transform read it; the record's own stands in its place",
    ]


@pytest.mark.parametrize(
    ("kind", "todo"),
    [(KAFKA + "Cast$Key", []), ("com.acme.Secret$Key", ["Secret of the record's key"])],
)
def test_transforms_of_a_key_that_no_table_has(kind: str, todo: list[str]) -> None:
    imported, _ = made({**ICEBERG, **chain((kind, {}))}, COLUMNS)
    assert [line.split(":")[0] for line in imported.todo] == todo
    assert imported.steps[0].endswith(": see below" if todo else ": see below, if the file reads the record's key")


def test_columns_of_the_tables_are_followed_back() -> None:
    options = chain(
        (KAFKA + "ReplaceField$Value", {"renames": "name:title"}),
        (KAFKA + "InsertField$Value", {"topic.field": "topic"}),
        (KAFKA + "TimestampConverter$Value", {"field": "at", "target.type": "Timestamp", "format": "yyyy"}),
    )
    tables = {"id": "long", "title": "string", "topic": "string", "at": "timestamp"}
    _, spec = made({**ICEBERG, **options}, known={"db.t": KnownTable(tables)})
    assert spec.source.value.columns == {"id": "long", "name": "text", "at": "string"}
    assert dict(spec.source.row) == tables


def test_records_keep_a_field_that_a_transform_inserts_into_others_only() -> None:
    insert = under(KAFKA + "InsertField$Value", {"static.field": "region", "static.value": "eu"})
    known = {"db.t": KnownTable({"id": "long", "region": "string not null"})}
    _, spec = made({**ICEBERG, **chain(insert), **predicate(OF_TOPIC)}, known=known)
    assert spec.source.value.columns == {"id": "long", "region": "string"}
    assert spec.source.transform is not None
    assert spec.source.transform.sql == (
        "select * except (`region`), case when (_topic rlike '^(?:new_.*)$') then 'eu' else `region` end as `region` "
        "from records"
    )
    assert spec.source.row["region"] == "string not null"


@pytest.mark.parametrize(
    ("options", "kind", "read", "expression"),
    [
        ({"target.type": "string", "format": "yyyy-MM-dd", "unix.precision": "seconds"}, "string", "long",
         "date_format(timestamp_seconds(`at`), 'yyyy-MM-dd')"),
        ({"target.type": "string", "format": "yyyy-MM-dd"}, "string", "timestamp", "date_format(`at`, 'yyyy-MM-dd')"),
        ({"target.type": "unix", "format": "yyyy", "unix.precision": "seconds"}, "long", "string",
         "unix_seconds(to_timestamp(`at`, 'yyyy'))"),
        ({"target.type": "unix", "unix.precision": "microseconds"}, "long", "long",
         "unix_micros(timestamp_micros(`at`))"),
        ({"target.type": "unix", "unix.precision": "seconds", "schemas": "true"}, "long", "timestamp",
         "unix_seconds(`at`)"),
    ],
)  # fmt: skip
def test_times_are_read_in_the_unit_of_the_converter(
    options: dict[str, str], kind: str, read: str, expression: str
) -> None:
    """Without a schema a time is a number, in the unit that the converter names, or a text in its format."""
    configured = {**ICEBERG, **chain((KAFKA + "TimestampConverter$Value", {"field": "at", **options}))}
    configured["value.converter.schemas.enable"] = options.get("schemas", "false")
    _, spec = made(configured, known={"db.t": KnownTable({"id": "long", "at": kind})})
    assert spec.source.value.columns == {"id": "long", "at": read}
    assert spec.source.transform is not None
    assert spec.source.transform.sql == f"select * except (`at`), {expression} as `at` from records"
    assert spec.source.row["at"] == kind


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({}, "__dbz__physicalTableIdentifier"),
        ({"key.field.name": "shard"}, "shard"),
        ({"key.enforce.uniqueness": "false"}, ""),
    ],
)
def test_the_field_that_debezium_adds_to_keys_of_shards_is_to_do(options: dict[str, str], field: str) -> None:
    rule = {"topic.regex": r"s\d\.(.*)", "topic.replacement": "all.$1"}
    router = ("io.debezium.transforms.ByLogicalTableRouter", {**rule, **options})
    shards = {"topics": "s1.orders,s2.orders", **chain(router)}

    def notes(sink: dict[str, str]) -> list[str]:
        todo = made({**sink, **shards}, COLUMNS)[0].todo
        return [line.split(",")[0] for line in todo if line.startswith("ByLogicalTableRouter: ")]

    assert notes(BIGQUERY) == ([f"ByLogicalTableRouter: added {field}"] if field else [])
    assert notes({**BIGQUERY, "upsertEnabled": "false", "deleteEnabled": "false", "kafkaKeyFieldName": ""}) == []
