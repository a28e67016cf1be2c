"""Transforms that extract the row from change data: they become `source.value.envelope`.

Sources: Debezium's documentation of ExtractNewRecordState; `DebeziumTransform`, `DmsTransform` and
`MongoDebeziumTransform` of Tabular's Iceberg sink.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from jobs.connect_import.chain import Chain
from jobs.connect_import.configured import Options, Transform
from jobs.connect_import.steps import Step, items
from sql import literal

# Fields of the envelope itself; other simple names in `add.fields` are fields of its `source`.
_OF_ENVELOPE = {"op", "ts_ms", "ts_us", "ts_ns", "before", "after", "source", "transaction"}
_LONG = {"ts_ms", "ts_us", "ts_ns", "lsn", "xmin", "pos", "row", "server_id", "thread", "total_order",
         "data_collection_order", "txId", "event_serial_no", "ord"}  # fmt: skip
TARGET = "_cdc_target"


def extract_new_record_state(chain: Chain, options: Options) -> str:
    prefix = options.get("add.fields.prefix", "__")
    metadata, types = {}, {}
    for part in items(options, "add.fields"):
        given, _, renamed = part.partition(":")
        column = prefix + (renamed or given.replace(".", "_"))
        metadata[column] = given if "." in given or given in _OF_ENVELOPE else f"source.{given}"
        types[column] = "long" if given.rsplit(".", 1)[-1] in _LONG else "string"
    chain.unwrap("debezium", metadata, types)
    if named := options.get("route.by.field"):
        chain.metadata_lost["_topic"] = "ExtractNewRecordState"
        chain.todo.append(f"route.by.field: {named} named the topic; route tables by it (tables[].route.field)")
    if items(options, "add.headers"):
        chain.metadata_lost["_headers"] = "ExtractNewRecordState"
        chain.todo.append("add.headers: tables have no headers; name these parts in source.value.envelope.metadata")
    return "source.value.envelope: debezium"


def drops_deletes(options: Options) -> bool:
    """Whether deleted rows do not reach the sink. The two older options are those before Debezium 2.5."""
    mode = options.get("delete.tombstone.handling.mode", "")
    if mode or "delete.handling.mode" not in options:
        return mode == "drop"
    tombstones = options.get("drop.tombstones", "true") == "false"
    return options["delete.handling.mode"] in ("drop", "none") and not tombstones


def _rewrites(options: Options) -> bool:
    given = options.get("delete.tombstone.handling.mode", "") + options.get("delete.handling.mode", "")
    return "rewrite" in given


def tabular_debezium(chain: Chain, options: Options) -> str:
    metadata = {"_cdc_schema": "source.schema", "_cdc_db": "source.db", "_cdc_table": "source.table"}
    chain.unwrap("debezium", metadata, dict.fromkeys(metadata, "string"))
    db, table = f"coalesce({chain.made['_cdc_schema']}, {chain.made['_cdc_db']})", chain.made["_cdc_table"]
    pattern = options.get("cdc.target.pattern", "{db}.{table}")
    target = f"replace(replace({literal(pattern)}, '{{db}}', {db}), '{{table}}', {table})"
    for column in metadata:
        chain.drop(column)
    chain.make(TARGET, target, "string")
    return "source.value.envelope: debezium; `_op` is _cdc.op"


def tabular_dms(chain: Chain, _options: Options) -> str:
    chain.unwrap("dms", {}, {})
    return "source.value.envelope: dms; `_op` is _cdc.op"


def tabular_mongo(chain: Chain, _options: Options) -> str:
    chain.unwrap("mongo", {}, {})
    return "source.value.envelope: mongo"


def log_deletes(
    transforms: Sequence[Transform], tables: Sequence[dict[str, Any]], columns: Container[str]
) -> list[str]:
    """Makes deletes rows of tables whose rows they were; returns what a person has to check.

    Args:
        tables: entries of `tables`.
        columns: of the tables, if known.
    """
    marks = [(t, "__deleted") for t in transforms if t.kind == "ExtractNewRecordState" and _rewrites(t.options)]
    marks += [(t, "_cdc") for t in transforms if t.kind in ("DebeziumTransform", "DmsTransform")]
    todo = []
    for transform, column in marks:
        appended = [table for table in tables if table["mode"] == "append"]
        for table in appended:
            table["deletes"] = "rows"
            table["metadata_columns"] = [*table.get("metadata_columns", []), "op"]
        if column == "__deleted" and len(appended) < len(tables):
            todo.append(f"{transform.name}: a deleted row came as a row with __deleted; a table of mode upsert leaves "
                        "deletes out, one of mode upsert_delete removes the row")  # fmt: skip
        if column in columns:
            todo.append(f"{column}: {transform.kind} filled it, and it is null from now on: `_op` says what a row of "
                        "mode append is; or make it in source.transform, of parts that "
                        "source.value.envelope.metadata names")  # fmt: skip
    return todo


UNWRAPPING: dict[str, Step] = {
    "ExtractNewRecordState": extract_new_record_state,
    "DebeziumTransform": tabular_debezium,
    "DmsTransform": tabular_dms,
    "MongoDebeziumTransform": tabular_mongo,
}
