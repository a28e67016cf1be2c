"""A table's state in KeeperMap, for readers: leases, topic-partitions, and what a dead run left behind."""

from __future__ import annotations

from jobs.destinations.clickhouse.keeper import NO_STATE_TABLE
from jobs.destinations.clickhouse.state import state_from_text
from jobs.destinations.leases import LeaseState, PartitionState
from resources.clickhouse import ClickHouseServer, Row
from resources.errors import TerminalError
from sql import render


def lease_state(server: ClickHouseServer, state_table: tuple[str, str], name: str) -> LeaseState | None:
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
