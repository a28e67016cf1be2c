"""Columns of records if only the connector's configuration is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobs.connect_import.chain import Chain
from jobs.connect_import.connect import takes_new_fields
from jobs.connect_import.placing import Placing
from jobs.decode.envelope_shape import OPERATION
from jobs.iceberg.partition_text import TIMES, parse_partition
from jobs.spec.envelope import OP_COLUMN

PLACEHOLDER = {"fill_in": "string"}


def open_columns(named_columns: Sequence[str], parts: list[dict[str, Any]], chain: Chain, placed: Placing) -> list[str]:
    """Declares the columns that the connector names, and leaves others to the records if possible; returns notes."""
    named = dict.fromkeys(named_columns, "string")
    for column, kind in {**_partition_columns(parts), **named}.items():
        if column not in chain.made:
            chain.read(column, kind)
    if chain.closed:
        return []
    if not _takes_columns(parts, chain, placed):
        return ["source.value.columns: declare the records' columns (--columns); `fill_in` is a placeholder"]
    if all(part["evolve"]["add_columns"] for part in parts):
        return []
    for part in parts:
        part["evolve"]["add_columns"] = True
    return ["source.value.unknown_fields: all fields become columns, also new ones, which the sink left out; import "
            "beside its tables (without --no-offsets), or declare columns"]  # fmt: skip


def _takes_columns(parts: list[dict[str, Any]], chain: Chain, placed: Placing) -> bool:
    """Whether columns are left to the records: the sink did so too, and they pass the transforms.

    If each topic has its own table, no columns are common to all of them.
    """
    open_ = placed.each or all(p["create"] or p["evolve"]["add_columns"] for p in parts)
    if not open_ or not takes_new_fields(chain):
        return False
    for column in PLACEHOLDER:
        chain.columns.pop(column, None)
        chain.drop(column)
    if chain.envelope and chain.metadata == {OP_COLUMN: OPERATION}:
        chain.columns.pop(OP_COLUMN, None)
        chain.drop(OP_COLUMN)
    return True


def _partition_columns(parts: list[dict[str, Any]]) -> dict[str, str]:
    """Columns by which tables are partitioned and clustered, with types; `day(at)` shows that it is a time."""
    found = dict.fromkeys((name for part in parts for name in part.get("cluster_by", [])), "string")
    for partition in (parse_partition(text) for part in parts for text in part.get("partition_by", [])):
        if partition:
            found[partition.column] = "timestamp" if partition.transform in TIMES else "string"
    return {**found, **{part["partition_column"]: "timestamp" for part in parts if "partition_column" in part}}
