"""Transforms that extract the row from change data: they become `source.value.envelope`.

Sources: Debezium's documentation of ExtractNewRecordState; `DebeziumTransform`, `DmsTransform` and
`MongoDebeziumTransform` of Tabular's Iceberg sink.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from typing import Any

from jobs.connect_import.chain import Chain
from jobs.connect_import.configured import ConfiguredTransform, TransformOptions
from jobs.connect_import.known import KnownTable
from jobs.connect_import.steps import Translation, items
from jobs.spec.column_rules import RESERVED
from sql import literal

# Fields of the envelope itself; other simple names in `add.fields` are fields of its `source`.
_OF_ENVELOPE = {"op", "ts_ms", "ts_us", "ts_ns", "before", "after", "source", "transaction"}
_LONG = {"ts_ms", "ts_us", "ts_ns", "lsn", "xmin", "pos", "row", "server_id", "thread", "total_order",
         "data_collection_order", "txId", "event_serial_no", "ord"}  # fmt: skip
TARGET = "_cdc_target"
MONGO = "MongoDebeziumTransform"
# Columns with which these transforms say what a row is, and which no record has any more.
MARKS = {"ExtractNewRecordState": "__deleted", "DebeziumTransform": "_cdc", "DmsTransform": "_cdc"}


def extract_new_record_state(chain: Chain, options: TransformOptions) -> str:
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


def deletes_mode(options: TransformOptions) -> str:
    """How ExtractNewRecordState hands on deletes, as its `delete.tombstone.handling.mode` says it; empty where that
    depends on Debezium's version. Options until Debezium 2.4 also count after it where the newer one is left out."""
    handling, tombstones = options.get("delete.handling.mode", ""), options.get("drop.tombstones", "")
    if (mode := options.get("delete.tombstone.handling.mode", "")) or not (handling or tombstones):
        return mode
    # none: a delete goes on without a value, whatever becomes of the tombstone after it.
    rewrites, keeps = handling == "rewrite", tombstones == "false" or handling == "none"
    return {
        (True, True): "rewrite-with-tombstone",
        (True, False): "rewrite",
        (False, True): "tombstone",
        (False, False): "drop",
    }[rewrites, keeps]


def tabular_debezium(chain: Chain, options: TransformOptions) -> str:
    table = "source.collection" if chain.envelope == "mongo" else "source.table"
    metadata = {"_cdc_schema": "source.schema", "_cdc_db": "source.db", "_cdc_table": table}
    chain.unwrap("debezium", metadata, dict.fromkeys(metadata, "string"))
    db, table = f"coalesce({chain.made['_cdc_schema']}, {chain.made['_cdc_db']})", chain.made["_cdc_table"]
    pattern = options.get("cdc.target.pattern", "{db}.{table}")
    target = f"replace(replace({literal(pattern)}, '{{db}}', {db}), '{{table}}', {table})"
    for column in metadata:
        chain.drop(column)
    chain.make(TARGET, target, "string")
    return f"source.value.envelope: {chain.envelope}; `_op` is _cdc.op"


def tabular_dms(chain: Chain, _options: TransformOptions) -> str:
    chain.unwrap("dms", {}, {})
    return "source.value.envelope: dms; `_op` is _cdc.op"


def tabular_mongo(chain: Chain, _options: TransformOptions) -> str:
    chain.unwrap("mongo", {}, {})
    chain.todo.append(
        f"{MONGO}: an update without the whole document is a dead letter, where it made a row of the changed fields: "
        "let Debezium send the document (capture.mode: change_streams_update_full)"
    )
    chain.key_todo.append(
        "source.key: MongoDB's keys are text of their own: add `envelope: mongo`, and declare the column `_id`"
    )
    return "source.value.envelope: mongo"


def log_deletes(
    transforms: Sequence[ConfiguredTransform],
    tables: Sequence[dict[str, Any]],
    filled: Callable[[str], Sequence[KnownTable]],
    columns: Container[str],
    key: Collection[str],
) -> list[str]:
    """Makes deletes rows of tables whose rows they were; returns what a person has to check.

    Args:
        tables: entries of `tables`.
        filled: the known tables that the entry of this name stands for.
        columns: of the tables, if known.
        key: the columns that identify a row, if the pipeline names them; else those of the tables do.
    """
    marks = [(t, MARKS[t.kind]) for t in transforms if t.kind in MARKS]
    marks = [
        (t, column) for t, column in marks if column != "__deleted" or deletes_mode(t.options).startswith("rewrite")
    ]
    keep = [table for table in tables if table["mode"] in ("append", "upsert")] if marks else []
    todo = [_as_rows(table, filled(table["table"]), key) for table in keep]
    for transform, column in marks:
        if column in columns:
            other = "; or make it in source.transform, of parts that source.value.envelope.metadata names"
            todo.append(f"{column}: {transform.kind} filled it, and it is null from now on: with `deletes: rows` `_op` "
                        f"says what a row is{'' if column in RESERVED else other}")  # fmt: skip
    return todo


def _as_rows(part: dict[str, Any], known: Sequence[KnownTable], key: Collection[str]) -> str:
    """Makes deletes rows in these tables, if they can take them; returns what a person has to check."""
    is_log = part["mode"] == "append"  # else a delete has its key
    lacking = [(table, c) for table in known for c in table.required if is_log or c not in (key or table.key)]
    fixed = dict.fromkeys(c for table, c in lacking if c in {*table.key, *table.fixed})
    if fixed:
        return (f"{part['table']}: deleted rows came as rows, and are left out: they may lack values, and no run can "
                f"make {', '.join(fixed)} optional; do it by hand and import again, or set `deletes: rows` and "
                "`evolve.relax_required`, and name these columns in changes.key")  # fmt: skip
    part["deletes"] = "rows"
    part["metadata_columns"] = [*part.get("metadata_columns", []), "op"]
    relaxed = ", ".join(dict.fromkeys(c for _, c in lacking))
    every = "all columns" if is_log else "all columns but the key's"
    makes = f" and makes {relaxed} optional" if relaxed else "" if known else f" and makes {every} optional"
    return f"{part['table']}: deleted rows are rows as before (`deletes: rows`): the first run adds `_op`{makes}"


UNWRAPPING: dict[str, Translation] = {
    "ExtractNewRecordState": extract_new_record_state,
    "DebeziumTransform": tabular_debezium,
    "DmsTransform": tabular_dms,
    MONGO: tabular_mongo,
}
