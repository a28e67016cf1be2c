"""What a sensor shows of a table's state in KeeperMap: leases, topic-partitions, and what a dead run left behind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from jobs.batch import CommittedState
from jobs.destinations.clickhouse.keeper import NO_STATE_TABLE
from jobs.destinations.clickhouse.lease import state_from_text
from resources.clickhouse import ClickHouseServer, Row
from resources.errors import TerminalError
from sql import render


@dataclass(frozen=True)
class PartitionState:
    """One topic-partition: offsets `first` to `last` (both included) were begun (BEFORE) or done (AFTER)."""

    topic: str
    partition: int
    first: int
    last: int
    phase: str
    batch: int
    commit_id: str
    run_id: str
    changed_at: datetime


@dataclass(frozen=True)
class LeaseState:
    """One lease: of a table on one endpoint.

    Attributes:
        shard: number of the endpoint, from 1.
        owner: token of the run that holds the lease; empty where nobody does.
        batch: under way; 0 for none.
        committed: the state that the table has; None before its first batch.
        changed_at: when the lease last changed.
    """

    pipeline: str
    table: str
    shard: int
    endpoint: str
    owner: str
    run_id: str
    epoch: int
    batch: int
    committed: CommittedState | None
    changed_at: datetime
    partitions: tuple[PartitionState, ...]

    @property
    def left_behind(self) -> bool:
        """A batch was begun and is not committed: its run is at work, or it is dead and another one must finish."""
        return self.batch > 0

    @property
    def open_partitions(self) -> tuple[PartitionState, ...]:
        """Topic-partitions whose insert was begun and not confirmed."""
        return tuple(p for p in self.partitions if p.phase == "BEFORE")


def partition_states(server: ClickHouseServer, state_table: tuple[str, str], name: str) -> LeaseState | None:
    """The lease of this name (pipeline/table/shard) with its topic-partitions; None before the first run."""
    try:
        rows = server.rows(render("clickhouse", "state_rows", table=state_table, prefix=True), {"prefix": name})
    except TerminalError as problem:
        if problem.facts.get("code") in NO_STATE_TABLE:
            return None
        raise
    lease = next((row for row in rows if row["name"] == name), None)
    if lease is None:
        return None
    below = [row for row in rows if row["name"].startswith(f"{name}/")]
    pipeline, table, shard = name.split("/")
    return LeaseState(
        pipeline=pipeline,
        table=table,
        shard=int(shard),
        endpoint=server.endpoint,
        owner=lease["owner"],
        run_id=lease["run_id"],
        epoch=lease["epoch"],
        batch=lease["batch"],
        committed=state_from_text(lease["state"]) if lease["state"] else None,
        changed_at=lease["changed_at"],
        partitions=tuple(sorted((_partition(row) for row in below), key=lambda p: (p.topic, p.partition))),
    )


def _partition(row: Row) -> PartitionState:
    topic, partition = row["name"].rsplit("/", 2)[1:]
    return PartitionState(
        topic=topic,
        partition=int(partition),
        first=row["first"],
        last=row["last"],
        phase=row["phase"],
        batch=row["batch"],
        commit_id=row["commit_id"],
        run_id=row["run_id"],
        changed_at=row["changed_at"],
    )
