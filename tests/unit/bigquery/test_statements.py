"""Every statement that is generated for BigQuery is accepted by Google's analyzer; what the emulator cannot run is as
on file (tests/unit/sql/bigquery). After a wanted change: `REGENERATE_SQL=1`; read the difference before you commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from google.cloud.bigquery import PartitionRange, RangePartitioning, Table, TimePartitioning

from jobs.changes.columns import names_unchanged_columns
from jobs.changes.unchanged_columns import unchanged_parameters
from jobs.destinations.bigquery.columns import destination_columns, staging_fields
from jobs.destinations.bigquery.field import Field
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.state import _SCHEMA, STATE_TABLE
from jobs.destinations.bigquery.statements import Statement, order_column, statement
from jobs.destinations.bigquery.tables import as_partitioned, demanded_filter
from jobs.spec.pipeline import PipelineSpec
from sql import render
from tests.kit import specs

GOLDEN = Path(__file__).parents[1] / "sql" / "bigquery"
TARGET, STAGING, STATE = "p.d.dest", "p.d._dest_tmp_p_1_2", f"p.d.{STATE_TABLE}"

FLAT = {"id": "long", "name": "string", "amount": "decimal(12,2)", "day": "date"}
NESTED = {"k": "struct<a: long, b: struct<c: string, at: timestamp>>", "name": "string"}
EVERYTHING = {
    "id": "long",
    "doc": "string",
    "place": "string",
    "clock": "string",
    "millis": "int",
    "micros": "long",
    "days": "int",
    "big": "decimal(38,2)",
    "tags": "array<struct<name: string, rank: int>>",
    "counts": "map<string,long>",
    "wall": "timestamp_ntz",
    "raw": "binary",
    "ratio": "double",
}
TYPES = {
    "doc": "JSON",
    "place": "GEOGRAPHY",
    "clock": "TIME",
    "millis": "TIME",
    "micros": "TIME",
    "days": "DATE",
    "big": "BIGNUMERIC",
}
COORDINATES = ["topic", "partition", "offset"]


def pipeline(
    mode: str,
    columns: Mapping[str, str] = FLAT,
    key: str = "id",
    nulls: str = "refuse",
    order_by: str = "arrival",
    **options: object,
) -> PipelineSpec:
    keyed = {"key": {"columns": [key], "source": "value", "nulls": nulls}, "order_by": order_by}
    table = specs.table("bigquery", mode, "d.dest") | options
    return specs.spec(table, columns={**columns, "op": "string"}, changes={**keyed, "op": {"field": "op"}})


CASES: dict[str, PipelineSpec] = {
    **{mode: pipeline(mode) for mode in ("append", "upsert", "upsert_delete", "delete")},
    **{f"{mode}_ordered": pipeline(mode, order_by="amount") for mode in ("upsert", "upsert_delete", "delete")},
    **{
        f"{mode}_nested_null_safe": pipeline(mode, NESTED, "k", nulls="match")
        for mode in ("upsert", "upsert_delete", "delete")
    },
    **{
        f"{mode}_ingestion_time": pipeline(mode, time_partitioning="HOUR", require_partition_filter=True)
        for mode in ("append", "upsert", "upsert_delete", "delete")
    },
    "upsert_delete_ingestion_time_of_merge": pipeline(
        "upsert_delete", time_partitioning="MONTH", partition_time="ingestion"
    ),
    "upsert_delete_filter_required": pipeline(
        "upsert_delete", time_partitioning="DAY", partition_column="day", require_partition_filter=True
    ),
    "upsert_delete_bounded": pipeline("upsert_delete", key="day", time_partitioning="DAY", partition_column="day"),
    "delete_bounded": pipeline("delete", cluster_by=["id"]),
    "upsert_delete_every_type": pipeline("upsert_delete", EVERYTHING, column_types=TYPES),
    "append_every_type": pipeline("append", EVERYTHING, column_types=TYPES, metadata_columns=["partition", "offset"]),
    "upsert_delete_only_keys": pipeline("upsert_delete", {"id": "long"}),
}
LARGE = {"id": "long", "name": "string", "doc": "string", "raw": "binary", "tags": "array<string>", "n": "long"}


def keeping(mode: str, **options: object) -> PipelineSpec:
    table = specs.table("bigquery", mode, "d.dest", column_types={"doc": "JSON"}) | options
    changes = {"key": {"columns": ["id"], "source": "value", "nulls": "match"}, "order_by": "arrival"}
    return specs.spec(table, columns=LARGE, value={"envelope": "debezium"}, changes=changes)


KEEPING = {
    "upsert_keeping": keeping("upsert"),
    "upsert_delete_keeping": keeping("upsert_delete", time_partitioning="HOUR"),
}
REPLAYS = {
    f"{mode}_replayed": pipeline(mode, metadata_columns=COORDINATES, order_by=order)
    for mode, order in (("append", "arrival"), ("delete", "amount"))
} | {
    f"{mode}_filter_required_replayed": pipeline(
        mode, metadata_columns=COORDINATES, order_by="arrival", time_partitioning="DAY", require_partition_filter=True
    )
    for mode in ("append", "delete")
}


# A topic was recreated once, another one twice.
RECREATED = {
    f"{mode}_recreated_replayed": pipeline(mode, metadata_columns=[*COORDINATES, "batch"], order_by="arrival")
    for mode in ("append", "delete")
}
REPLAYS |= RECREATED


# From landed files, which keep what a delete took away.
LANDED = {f"{mode}_landed": pipeline(mode) for mode in ("append", "upsert", "upsert_delete", "delete")}
# An order that was named later: the staging table still says operations.
LANDED["upsert_delete_truncating_landed"] = pipeline("upsert_delete", order_by="amount")


TRUNCATING = {
    "upsert_delete_truncating": pipeline(
        "upsert_delete", order_by="amount", time_partitioning="DAY", require_partition_filter=True
    ),
    "delete_truncating": pipeline("delete", order_by="amount"),
    "upsert_delete_truncating_landed": LANDED["upsert_delete_truncating_landed"],
}
ALL = {**CASES, **KEEPING, **REPLAYS, **LANDED, **TRUNCATING}


def made(
    spec: PipelineSpec, replayed: bool = False, landed: bool = False
) -> tuple[Statement, list[Field], list[Field]]:
    """The statement with the fields of its two tables."""
    table = specs.entry(spec, BigQueryTable)
    columns = destination_columns(spec, table)
    found = statement(spec, table, columns, TARGET, STAGING, landed)
    if replayed:
        found = replace(found, coordinates=tuple(c.name for c in columns if c.source[0] == "kafka"))
        later = ((7,), (3, 12)) if spec in RECREATED.values() else ()
        found = replace(found, recreated=later)
    truncating = spec in TRUNCATING.values()
    found = replace(found, truncated=truncating, truncates=truncating)
    kept = names_unchanged_columns(spec)
    found = found.keeping(["tags", "doc", "raw"]) if kept else found
    staged = staging_fields(columns, order_column(spec, columns), kept, landed)
    return found, [c.field for c in columns], staged


def parameters(found: Statement) -> dict[str, str]:
    bounds = {name: "STRING" for b in found.bounds for name in (b.low, b.high)}
    kept = dict.fromkeys(unchanged_parameters([c.name for c in found.unchanged]), "STRING")
    recreated = {f"recreated_{n}": "STRING" for n, _ in enumerate(found.recreated)}
    below = {"below": "INTEGER"} if found.truncated else {}
    return {"first": "INTEGER", "last": "INTEGER", **below, **bounds, **kept, **recreated}


# It knows no `_PARTITIONTIME` and, inside a MERGE, no PARSE_JSON; and no test recreates a topic for this mode.
ON_FILE = [case for case, spec in ALL.items() if "_PARTITIONTIME" in made(spec, case in REPLAYS)[0].text()]
ON_FILE += ["upsert_delete_every_type", "delete_recreated_replayed"]


@pytest.mark.parametrize("case", ON_FILE)
def test_statement_is_the_one_on_file(case: str) -> None:
    found, _, _ = made(ALL[case], case in REPLAYS)
    file = GOLDEN / f"{case}.sql"
    if os.environ.get("REGENERATE_SQL"):
        file.write_text(found.text() + "\n")
    assert found.text() + "\n" == file.read_text()


@pytest.mark.parametrize("case", ALL)
def test_statement_is_accepted_by_googles_analyzer(case: str, analyze: Callable[..., None]) -> None:
    spec = ALL[case]
    found, target, staged = made(spec, case in REPLAYS, case in LANDED)
    table = specs.entry(spec, BigQueryTable)
    tables = {TARGET: (target, table.by_ingestion_time), STAGING: (staged, True)}
    analyze(found.text(), tables, parameters(found))
    assert ("`orderBy` >= @below" in found.text()) is found.truncated
    if found.bounds:
        analyze(found.bounds_text(), tables, parameters(found))
    if found.unchanged:
        analyze(found.unchanged_columns_text(), tables, parameters(found))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("`batch`.`value`.`name`", "`batch`.`value`.`nope`"),
        ("`amount` = `batch`.`value`.`amount`", "`amount` = `batch`.`value`.`name`"),
        ("THEN DELETE", "THEN REMOVE"),
        ("`t`.`id` = ", "`t`.`day` = "),
    ],
)
def test_analyzer_refuses_a_broken_statement(old: str, new: str, analyze: Callable[..., None]) -> None:
    found, target, staged = made(CASES["upsert_delete"])
    broken = found.text().replace(old, new)
    assert broken != found.text()
    with pytest.raises(Exception, match=r"(?i)not found|does not exist|cannot|no matching|expected|unrecognized"):
        analyze(broken, {TARGET: (target, False), STAGING: (staged, True)}, parameters(found))


_COLUMNS = [field.name for field in _SCHEMA if field.name not in ("table_name", "moved_by", "updated_at")]


@pytest.mark.parametrize("template", ["state_read", "state_create", "state_update", "state_forget"])
def test_state_statements_are_accepted(template: str, analyze: Callable[..., None]) -> None:
    declared = {
        **dict.fromkeys([f.name for f in _SCHEMA] + ["committed"], "STRING"),
        **{f"new_{f.name}": f.field_type for f in _SCHEMA},
    }
    analyze(render("bigquery", template, table=STATE, columns=_COLUMNS), {STATE: (_SCHEMA, False)}, declared)


@pytest.mark.parametrize("kind", ["GEOGRAPHY", "TIMESTAMP", "NUMERIC"])
def test_question_about_texts_is_accepted(kind: str, analyze: Callable[..., None]) -> None:
    text = render("bigquery", "unreadable_texts", type=kind)
    analyze(text.replace("UNNEST(@texts)", "UNNEST([@text])"), {}, {"text": "STRING"})


_TEXTS = {"doc": "JSON", "place": "GEOGRAPHY", "clock": "TIME", "code": "NUMERIC", "day": "DATE"}


@pytest.mark.parametrize("name", _TEXTS)
def test_questions_of_verify_are_accepted(name: str, analyze: Callable[..., None]) -> None:
    """One about values does not fail at a text that cannot be converted; a null is no JSON null."""
    found, target, _ = made(pipeline("append", dict.fromkeys(_TEXTS, "string"), "code", column_types=_TEXTS))
    column = next(c for c in found.columns if c.name == name)
    asked = render("bigquery", "stored_values", column=column)
    assert "SAFE" in asked
    analyze(asked.replace("UNNEST(@values)", "UNNEST([@value])"), {}, {"value": "STRING"})
    read = render("bigquery", "some_rows", columns=[name], table=TARGET, texts=_TEXTS, limit=0, whole=None)
    analyze(read, {TARGET: (target, False)}, {})
    assert all(("IS NULL" in text) is (name == "doc") for text in (asked, read))


@pytest.mark.parametrize("mode", ["append", "upsert", "upsert_delete", "delete"])
@pytest.mark.parametrize(
    ("present", "by"),
    [
        (None, "HOUR"),
        (TimePartitioning(type_="HOUR"), "HOUR"),
        (TimePartitioning(type_="DAY"), "DAY"),
        (TimePartitioning(type_="DAY", field="day"), ""),
        ("not partitioned", ""),
    ],
)
def test_rows_go_into_the_partitions_that_the_table_has(mode: str, present: object, by: str) -> None:
    """The options of the file are for tables that we create: one that exists may have no `_PARTITIONTIME`."""
    spec, found = CASES[f"{mode}_ingestion_time"], Table(TARGET)
    entry = specs.entry(spec, BigQueryTable)
    found.time_partitioning = present if isinstance(present, TimePartitioning) else None
    table = as_partitioned(entry, found if present else None)
    text = statement(spec, table, destination_columns(spec, table), TARGET, STAGING, says_op=False).text()
    assert ("_PARTITIONTIME" in text) is bool(by)
    assert (f"TIMESTAMP_TRUNC(`batch`.`partitionTime`, {by})" in text) is bool(by)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (TimePartitioning(type_="DAY", field="Day"), "(`t`.`day` IS NULL OR `t`.`day` >= DATE '0001-01-01')"),
        (TimePartitioning(type_="HOUR"), "`_PARTITIONTIME` >= TIMESTAMP '0001-01-01'"),
        (PartitionRange(start=0, end=100, interval=10), "`t`.`id` >= -9223372036854775808)"),
        (None, ""),
    ],
)
def test_filter_is_the_one_that_the_table_demands(by: object, expected: str) -> None:
    """The option of the file is for tables that we create."""
    spec = CASES["upsert_delete"]
    table = specs.entry(spec, BigQueryTable)
    columns = destination_columns(spec, table)
    present = Table(TARGET, schema=[c.field.to_api_repr() for c in columns])
    if isinstance(by, TimePartitioning):
        present.time_partitioning = by
    elif isinstance(by, PartitionRange):
        present.range_partitioning = RangePartitioning(by, field="id")
    present.require_partition_filter = by is not None
    found = statement(spec, table, columns, TARGET, STAGING, says_op=False)
    assert found.whole is None
    text = replace(found, whole=demanded_filter(present)).text()
    assert (expected in text) if expected else ("IS NULL OR" not in text)


@pytest.mark.parametrize("case", ["upsert_delete", "upsert_delete_ordered"])
def test_statements_on_the_staging_table_are_accepted(case: str, analyze: Callable[..., None]) -> None:
    found, _, staged = made(CASES[case])
    tables = {STAGING: (staged, True)}
    keep = bool(found.order_by)
    analyze(render("bigquery", "loaded_rows", staging_table=STAGING), tables, parameters(found))
    analyze(render("bigquery", "clean_up", staging_table=STAGING, keep_deletes=keep), tables, parameters(found))
    if keep:
        text = render("bigquery", "kept_deletes", replay_table=STAGING, staging_table=STAGING)
        analyze(text, tables, parameters(found))
