"""The statements that put rows into one table on one endpoint, and what travels with them."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.destinations.clickhouse.columns import Column
from jobs.destinations.clickhouse.insertion import BATCH, DELETED, ORDER, POSITION, Only
from jobs.destinations.clickhouse.tables import Layout
from resources.clickhouse import LEASE_LOST
from sql import quote, render


@dataclass(frozen=True)
class Statements:
    """Texts of the inserts into a table, each fenced by the lease.

    Attributes:
        state_table: where the lease is.
        shards: number of endpoints that rows are spread over.
    """

    layout: Layout
    state_table: tuple[str, str]
    shards: int

    @property
    def has_deletes(self) -> bool:
        return self.layout.table.mode == "upsert_delete"

    @property
    def wire(self) -> dict[str, str]:
        """Names and types of what is sent: the row's columns, and what its version is made of."""
        sent = {c.name: c.wire for c in self.layout.columns}
        if self.layout.versioned:
            sent |= {BATCH: "Int64", POSITION: "Int64"}
        if self.layout.ordered:
            sent |= {ORDER: "Int64"}
        if self.has_deletes:
            sent |= {DELETED: "UInt8"}
        return sent

    def insert(self, only: Only = Only.ALL, origin: bool = False) -> str:
        """The insert of one chunk.

        Args:
            origin: the table has the columns that say where a row is from (`Layout.origin`).
        """
        return render(
            "clickhouse",
            "insert_rows",
            table=self.layout.path,
            columns=self.layout.columns,
            versioned=self.layout.versioned,
            ordered=self.layout.ordered,
            deletes=self.has_deletes,
            structure=_structure(self.wire),
            state_table=self.state_table,
            lease_lost=LEASE_LOST,
            shard_by=self._shard_by if self.shards > 1 else [],
            hash_function=self.layout.table.hash_function,
            only=only.value,
            origin=origin,
        )

    @property
    def _shard_by(self) -> list[Column]:
        by_name = {c.name: c for c in self.layout.columns}
        return [by_name[name] for name in self.layout.table.shard_by or self.layout.keys or ["_topic", "_partition"]]

    def fits(self) -> dict[str, tuple[str, str]]:
        """Per converted column: what to ask whether its values fit, and the type that they travel as."""
        return {
            c.name: (render("clickhouse", "does_fit", column=c), _structure({c.name: c.wire}))
            for c in self.layout.columns
            if c.declared
        }

    @property
    def dead_letters(self) -> tuple[str, ...]:
        """The table beside for rows that do not fit."""
        return self.layout.path[0], f"{self.layout.path[1]}__dead_letters"

    def insert_dead_letters(self) -> str:
        return render(
            "clickhouse",
            "dead_letters_insert",
            table=self.dead_letters,
            state_table=self.state_table,
            lease_lost=LEASE_LOST,
        )

    def create_dead_letters(self) -> str:
        replicated = "Replicated" in self.layout.engine
        return render(
            "clickhouse",
            "dead_letters_create",
            table=self.dead_letters,
            cluster=self.layout.cluster,
            engine="ReplicatedMergeTree" if replicated else "MergeTree",
            window=("replicated" if replicated else "non_replicated") + "_deduplication_window",
        )


def _structure(types: dict[str, str]) -> str:
    """Names and types as ClickHouse's `input` and data beside a query take them."""
    return ", ".join(f"{quote('clickhouse', name)} {kind}" for name, kind in types.items())
