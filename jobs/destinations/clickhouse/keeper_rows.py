"""Rows of the state as values: leases, topic-partitions and pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobs.destinations.clickhouse.pages import PAGE, from_text
from jobs.destinations.clickhouse.state import Lease, PartitionRow
from jobs.destinations.clickhouse.transitions import Phase, Span
from jobs.destinations.leases import PartitionState
from jobs.offsets import TopicPartition
from resources.clickhouse import Row

COLUMNS = {
    "change": "String",
    "epoch": "UInt64",
    "owner": "String",
    "run_id": "String",
    "first": "Int64",
    "last": "Int64",
    "topic_id": "String",
    "batch": "UInt64",
    "commit_id": "String",
    "chunk_rows": "UInt64",
    "state": "String",
    "endpoints": "Array(String)",
    "phase": "String",
    "table_id": "String",
}
# Columns of topic-partitions that hold other fields in a lease: a KeeperMap table cannot get new columns.
NAMED = {"first": "first_batch", "last": "refill_until", "topic_id": "step", "phase": "spread_by"}


def lease_of(row: Row) -> Lease:
    values = {NAMED.get(column, column): row[column] for column in COLUMNS}
    return Lease(**{**values, "endpoints": tuple(values["endpoints"])})


def partition_of(row: Row) -> PartitionRow:
    span = Span(row["first"], row["last"])
    return PartitionRow(span, Phase(row["phase"]), row["batch"], row["commit_id"], row["topic_id"])


def partition_states(rows: Sequence[Row]) -> Iterator[PartitionState]:
    """Those of all rows below a lease; a page comes after the own rows that it stands in for."""
    for row in sorted(rows, key=lambda row: _is_page(row["name"])):
        if _is_page(row["name"]):
            there = from_text(row["state"])
        else:
            topic, partition = row["name"].rsplit("/", 2)[1:]
            there = {TopicPartition(topic, int(partition)): partition_of(row)}
        for tp, found in there.items():
            yield PartitionState(*tp, *found.span, found.phase, found.batch, row["changed_at"])


def _is_page(name: str) -> bool:
    return name.rsplit("/", 2)[1] == PAGE
