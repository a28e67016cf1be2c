"""One table on one endpoint, and its lease."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from jobs.batch import CommittedState
from jobs.destinations.clickhouse import present_table
from jobs.destinations.clickhouse.checks import check_endpoints
from jobs.destinations.clickhouse.keeper import KeeperStore
from jobs.destinations.clickhouse.present_table import Present
from jobs.destinations.clickhouse.side_table import ClickHouseSideTable
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.clickhouse.state import Lease
from jobs.destinations.clickhouse.statements import Statements
from jobs.destinations.clickhouse.wanted_table import Layout
from jobs.destinations.requirements import require_same_table
from jobs.only_writer import require_only_writer
from jobs.spec.columns import RowColumn, row_columns
from jobs.spec.pipeline import PipelineSpec
from resources.clickhouse import ClickHouseServer
from resources.clickhouse_errors import retried
from resources.errors import TableReplaced
from sql import render

# For the servers of a cluster to say that they have stopped older inserts.
_CLUSTER_SECONDS = 15


@dataclass(frozen=True)
class Shard:
    """A destination table on one endpoint.

    Attributes:
        number: of the endpoint, from 1.
    """

    pipeline: str
    spec: PipelineSpec
    table: ClickHouseTable
    server: ClickHouseServer
    number: int
    layout: Layout

    @property
    def where(self) -> str:
        return f"clickhouse {self.table.table} on {self.server.endpoint}"

    @cached_property
    def rows(self) -> tuple[RowColumn, ...]:
        """The columns of a row, as landed."""
        return tuple(row_columns(self.spec, self.table))

    @property
    def order_by(self) -> RowColumn | None:
        """The column that orders the changes of one key; None: batch and position do, or each becomes a row."""
        ordered_by = self.spec.changes.ordered_by
        return next(c for c in self.rows if c.name == ordered_by) if self.layout.ordered else None

    @cached_property
    def store(self) -> KeeperStore:
        return KeeperStore(self.server, f"{self.pipeline}/{self.table.table}/{self.number}")

    @cached_property
    def statements(self) -> Statements:
        return Statements(self.layout, self.store.table)

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(self.server.connection.endpoints)

    @property
    def others(self) -> list[Shard]:
        """The same table on the other endpoints."""
        connection = self.server.connection
        return [
            replace(self, server=ClickHouseServer(self.server.name, connection, endpoint), number=number)
            for number, endpoint in enumerate(self.endpoints, start=1)
            if number != self.number
        ]

    @property
    def spread_by(self) -> str:
        """The hash by which rows are spread over the endpoints; empty for one endpoint."""
        return self.statements.spread_by if len(self.endpoints) > 1 else ""

    def committed(self) -> CommittedState | None:
        lease = self.store.lease()
        if lease is None:
            return None
        check_endpoints(self.where, lease, self.endpoints)
        if lease.state:
            self.check_table(lease, self.present())
        return lease.committed

    def check_table(self, lease: Lease, present: Present | None) -> None:
        """Requires that the table is the one with the committed batches (`require_same_table`)."""
        if lease.committed:
            found = present.id if present else None
            require_same_table(
                lease.committed, lease.table_id, found, self.table, self.where, lambda: self.row_count(present)
            )

    def present(self) -> Present | None:
        """The table as it is now; None if it does not exist."""
        return present_table.describe(self.server, self.layout.path)

    def row_count(self, present: Present | None) -> int:
        """The number of stored rows on this endpoint, with replaced versions; 0 without a table."""
        if present is None:
            return 0
        if present.rows is not None:
            return present.rows
        counting = render("clickhouse", "count_rows", table=self.layout.path, final=False)
        return int(self.server.rows(counting)[0]["rows"])

    @cached_property
    def dead_letters(self) -> ClickHouseSideTable:
        return ClickHouseSideTable(self.server, self.statements.side_table, f"clickhouse {self.table.table}")

    @property
    def query_prefix(self) -> str:
        """The prefix of the query ids of this table's inserts; the owner's epoch follows."""
        return f"batchmerge-{hashlib.sha256(self.store.name.encode()).hexdigest()[:16]}-"

    def query_prefix_of(self, held: Lease) -> str:
        """The prefix of the query ids of one owner."""
        return f"{self.query_prefix}{held.epoch}-"

    def query_id(self, held: Lease) -> str:
        """A new query id, by which a newer owner finds and stops the statement."""
        return f"{self.query_prefix_of(held)}{uuid.uuid4().hex}"

    def take(self, seen: Lease) -> Lease:
        """Makes this process the owner, without a step; inserts of older owners are refused or stopped."""
        held = self.store.swap(seen, seen.idle().with_new_owner())
        self.stop_older(held)
        return held

    def release(self, held: Lease) -> None:
        """Releases the lease after work that commits nothing."""
        self.store.swap(held, replace(held, owner=""))

    def stop_older(self, held: Lease) -> None:
        """Stops inserts that passed the fence before the lease was taken over, but not those of a newer owner: on this
        endpoint, and on the servers of its cluster that answer soon."""
        self._stop_older(held, None, {})
        if self.layout.cluster:
            # Before the client gives up. A server that is down runs no insert, and would keep the table waiting.
            seconds = min(_CLUSTER_SECONDS, max(1, self.server.connection.statement_timeout_seconds // 2))
            patience = {
                "distributed_ddl_output_mode": "null_status_on_timeout",
                "distributed_ddl_task_timeout": seconds,
            }
            self._stop_older(held, self.layout.cluster, patience)

    def _stop_older(self, held: Lease, cluster: str | None, settings: Mapping[str, object]) -> None:
        named = {"prefix": self.query_prefix, "epoch": held.epoch}
        sql = render("clickhouse", "queries_kill", cluster=cluster, **named)
        retried(lambda: self.server.execute(sql, settings=settings))

    def check_only_writer(self) -> None:
        """Requires that no other pipeline writes the table: versions and coordinates are of one pipeline only."""
        require_only_writer(self.pipeline, self.store.other_pipelines(), self.where)

    def require_table(self) -> Present:
        present = self.present()
        if present is None:
            raise TableReplaced("the table is gone", where=self.where, remedy="restore it, then run again")
        return present
