"""A destination table in ClickHouse: fenced, deduplicated inserts under a lease in KeeperMap."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import SparkSession

from jobs.batch import CommittedState, LandedBatch, MergeCounts
from jobs.destinations.base import Destination, oldest
from jobs.destinations.clickhouse import window
from jobs.destinations.clickhouse.checks import check_keeps_records
from jobs.destinations.clickhouse.drop_state import drop_state, hand_over
from jobs.destinations.clickhouse.insert_task import InsertCounts
from jobs.destinations.clickhouse.layout_differences import layout_differences
from jobs.destinations.clickhouse.limits import limited_columns
from jobs.destinations.clickhouse.maintain import drop_deletes
from jobs.destinations.clickhouse.merge import merge, replay
from jobs.destinations.clickhouse.prepare import prepare
from jobs.destinations.clickhouse.present_table import Present
from jobs.destinations.clickhouse.present_types import column_takes
from jobs.destinations.clickhouse.read import ClickHouseReader, ClickHouseValues
from jobs.destinations.clickhouse.shard import Shard
from jobs.destinations.clickhouse.side_table import ClickHouseSideTable
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.clickhouse.wanted_table import Layout, layout_of
from jobs.destinations.leases import LeaseState
from jobs.destinations.merge_context import MergeContext, Merged
from jobs.destinations.refused_rows import with_refused
from jobs.destinations.stages import Stages
from jobs.destinations.takes import Takes
from jobs.maintenance.report import Done, do
from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection
from resources.errors import Unavailable
from sql import render


@dataclass(frozen=True)
class ClickHouseDestination(Destination):
    """`kind: clickhouse` of a pipeline file.

    With several endpoints each one is a shard with a lease and a committed state of its own; the table's committed
    state is the oldest of them, and shards that are further skip what they have.

    Attributes:
        endpoint: number of the only one that this is about; None: all of them.
    """

    table: ClickHouseTable
    connection: ClickHouseConnection
    endpoint: int | None = None

    def parts(self) -> Sequence[ClickHouseDestination]:
        shards = self.shards
        return [replace(self, endpoint=shard.number) for shard in shards] if len(shards) > 1 else [self]

    def committed(self) -> CommittedState | None:
        return oldest([shard.committed() for shard in self.shards])

    def prepare(self, dry_run: bool = False) -> list[str]:
        return [done for shard in self.shards for done in prepare(shard, dry_run)]

    def layout_differences(self) -> list[str]:
        # In the order in which they are found, each once.
        return list(dict.fromkeys(one for shard in self.shards for one in layout_differences(shard.server, self.table)))

    def takes(self, names: Collection[str]) -> Mapping[str, Takes]:
        present = self._described()
        return column_takes(present.types if present else {}, set(names).difference(self.table.column_types))

    def merge(
        self, context: MergeContext, committed: CommittedState | None, batches: Sequence[LandedBatch]
    ) -> Merged | None:
        if committed and batches[0].batch.revises is not None and self._others_lack(committed.batch_number):
            return None
        return self._merged(batches, lambda shard, clock: merge(shard, context, committed, batches, clock))

    def replay(self, context: MergeContext, committed: CommittedState, batches: Sequence[LandedBatch]) -> Merged:
        return self._merged(batches, lambda shard, clock: replay(shard, context, committed, batches, clock))

    def check_replay(self) -> None:
        for shard in self.shards:
            check_keeps_records(shard.where, self.table, shard.present())

    def dataset(self) -> tuple[str, str]:
        return f"clickhouse://{self.connection.endpoints[0]}", self.table.table

    def drop_state(self) -> bool:
        return drop_state(self.shards)

    def hand_over(self, to: str, at: CommittedState | None) -> bool:
        done = [hand_over(shard, to, at) for shard in self.shards]
        return any(done)

    def drop(self) -> bool:
        found = False
        for shard in self.shards:
            found |= shard.present() is not None
            for table in (self.layout.path, shard.statements.side_table):
                shard.server.execute(render("clickhouse", "table_drop", table=table))
        return found

    def read(self, session: Callable[[], SparkSession]) -> ClickHouseReader:
        del session
        values = ClickHouseValues(
            self.row_columns,
            [column.name for column in self.layout.columns if column.declared and not column.is_bytes],
            limited_columns(self.spec, self.table),
            self.table.out_of_range,
            server=self.shards[0].server,
            own=self.layout.columns,
        )
        return ClickHouseReader(values, self.layout, self.shards)

    def side_tables(self) -> Sequence[ClickHouseSideTable]:
        return [shard.dead_letters for shard in self.shards]

    def leases(self) -> list[LeaseState]:
        """What KeeperMap says of this table, per endpoint that has had a run; read only."""
        return [lease for shard in self.shards if (lease := shard.store.state())]

    def maintain(self, session: Callable[[], SparkSession]) -> Iterator[Done]:
        del session
        if self.committed() is not None and self.spec.maintenance.clean_up.enabled:
            yield do("clean_up", self.name, self._clean_up)

    def _others_lack(self, number: int) -> bool:
        """Whether records of batches up to this one, which are looked for on all endpoints, may still come to others.

        Nobody waits for them: what one endpoint leaves, the whole table gets once each has done what it can.
        """
        if self.endpoint is None or self.table.mode != "append":
            return False
        least = oldest(replace(self, endpoint=None).states())
        return least is None or least.batch_number < number

    def _described(self) -> Present | None:
        """The table as it is on the first endpoint that answers."""
        for shard in self.shards[:-1]:
            with suppress(Unavailable):
                return shard.present()
        return self.shards[-1].present()

    def _clean_up(self) -> Mapping[str, int]:
        options = self.spec.maintenance
        if not options.clean_up.deletes or self.table.mode != "upsert_delete" or self.layout.ordered:
            return {}
        return {"partitions rewritten": sum(drop_deletes(s, options.time_limit_seconds) for s in self.shards)}

    def _merged(self, batches: Sequence[LandedBatch], work: Callable[[Shard, Stages], InsertCounts]) -> Merged:
        clock = Stages()
        # `work` times its inserts; the rest is lease, BEFORE, AFTER and commit, and what it looks up for them.
        done = clock.time("state", lambda: sum((work(shard, clock) for shard in self.shards), InsertCounts()))
        changes = sum(b.counts.landed for b in batches)
        # What becomes of a version is decided when rows are read or merged: an insert cannot tell updates.
        counts = MergeCounts(changes=changes, inserted=done.rows - done.deletes, deleted=done.deletes)
        counts = with_refused(counts, self.spec, done.refused, done.out_of_range)
        # Each chunk is a query of its own; their log_comment has the run id.
        reference = ", ".join(f"{shard.query_prefix}%" for shard in self.shards)
        return Merged(counts, reference, clock.seconds)

    @cached_property
    def shards(self) -> list[Shard]:
        """One for each endpoint, in the order of the connections file."""
        return [
            Shard(
                pipeline=self.pipeline,
                spec=self.spec,
                table=self.table,
                server=ClickHouseServer(self.table.connection, self.connection, endpoint),
                number=number,
                layout=self.layout,
            )
            for number, endpoint in enumerate(self.connection.endpoints, start=1)
            if self.endpoint in (None, number)
        ]

    @cached_property
    def layout(self) -> Layout:
        partitions = window.most_partitions(self.connection) if self.table.partition_by else 1
        needed = window.for_new_table(self.spec.batch.max_records, self.table.chunk_rows, partitions)
        return layout_of(self.spec, self.table, needed, self.connection.cluster)
