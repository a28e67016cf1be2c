"""The statements that insert rows into one table on one endpoint, and the types of the data sent with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from jobs.destinations.clickhouse.engines import deduplication_window, replication
from jobs.destinations.clickhouse.insert_task import ORDER, POSITION, Only
from jobs.destinations.clickhouse.spread import NUMBER, Question, Spread
from jobs.destinations.clickhouse.wanted_table import Layout
from jobs.destinations.refusal import DEAD_LETTER_ROW, SENT_DELETED
from resources.clickhouse import ClickHouseServer
from resources.clickhouse_errors import LEASE_LOST
from sql import quote, render

# The batch in a row's version; for records that were read again not the batch that landed them first.
SENT_VERSION = "__bm_version"


@dataclass(frozen=True)
class Statements:
    """Texts of the inserts into a table, each fenced by the lease.

    Attributes:
        state_table: the table with the lease.
    """

    layout: Layout
    state_table: tuple[str, str]

    @property
    def wire(self) -> dict[str, str]:
        """Names and types of the columns that are sent: the row's, and those that make its version."""
        sent = {c.name: c.wire for c in self.layout.columns}
        if self.layout.versioned:
            sent |= {SENT_VERSION: "Int64", POSITION: "Int64"}
        if self.layout.ordered:
            sent |= {ORDER: "Int64"}
        if self.layout.table.loses_rows:
            sent |= {SENT_DELETED: "UInt8"}
        return sent

    def insert(self, only: Only = Only.ALL, origin: bool = False) -> str:
        """The insert of one chunk.

        Args:
            origin: the table has the columns of `Layout.origin`.
        """
        return self._fenced(
            "insert_rows",
            table=self.layout.path,
            columns=self.layout.columns,
            versioned=self.layout.versioned,
            ordered=self.layout.ordered,
            deletes=self.layout.table.loses_rows,
            structure=_structure(self.wire),
            only=only.value,
            origin=origin,
        )

    def truncated(self) -> str:
        """The query for the number of rows with a smaller `order_by` value."""
        return render("clickhouse", "rows_truncated", table=self.layout.path)

    def truncate(self) -> str:
        """The statement that marks rows with a smaller `order_by` value as deleted."""
        return self._fenced("rows_truncate", table=self.layout.path, columns=self.layout.columns)

    @property
    def shard_by(self) -> list[str]:
        """The columns whose hash picks the endpoint of a row."""
        return self.layout.table.shard_by or self.layout.keys or ["_topic", "_partition"]

    @property
    def spread_by(self) -> str:
        """The expression of that hash with the types of its columns: 5 as Int32 has another hash than as Int64."""
        types = {c.name: c.bare for c in self.layout.columns}
        return self._hashed(f"{name} {types[name]}" for name in self.shard_by)

    @property
    def spread_by_names(self) -> str:
        """The same without types, as older versions wrote it."""
        return self._hashed(self.shard_by)

    def _hashed(self, columns: Iterable[str]) -> str:
        return f"{self.layout.table.hash_function}({', '.join(columns)})"

    def spread(self, server: ClickHouseServer, endpoint: int, endpoints: int) -> Spread:
        """Selects the rows that belong on this endpoint (from 0) of `endpoints`."""
        by_name = {c.name: c for c in self.layout.columns}
        by = [by_name[name] for name in self.shard_by]
        sql = render(
            "clickhouse",
            "own_rows",
            number=NUMBER,
            hash_function=self.layout.table.hash_function,
            shard_by=by,
            shards=endpoints,
            shard=endpoint,
        )
        return Spread(_about_rows(server, sql, {c.name: c.wire for c in by}), endpoint, endpoints)

    def elsewhere(self, server: ClickHouseServer, origin: bool) -> Question:
        """Whether `server`, another endpoint, has a row's record; `origin` as in `insert`, of that server's table."""
        sql = render("clickhouse", "present_records", table=self.layout.path, number=NUMBER, origin=origin)
        return _about_rows(server, sql, {name: self.wire[name] for name in ("_topic", "_partition", "_offset")})

    def unfit(self, server: ClickHouseServer) -> dict[str, Question]:
        """For each converted column the question which values do not fit; arrays, maps and structs cannot be null
        instead, so they have none."""
        return {
            c.name: _about_rows(server, render("clickhouse", "unfit", column=c, number=NUMBER), {c.name: c.wire})
            for c in self.layout.columns
            if c.declared and not pa.types.is_nested(c.arrow)
        }

    def fits(self, server: ClickHouseServer) -> dict[str, Question]:
        """For each converted column the query that fails if a value does not fit."""
        return {
            c.name: _question(server, render("clickhouse", "does_fit", column=c), {c.name: c.wire})
            for c in self.layout.columns
            if c.declared
        }

    @property
    def side_table(self) -> tuple[str, str]:
        """The path of the side table with the dead letters of refused rows."""
        return self.layout.path[0], f"{self.layout.path[1]}__dead_letters"

    def insert_dead_letters(self) -> str:
        structure = _structure(_DEAD_LETTER_COLUMNS)
        return self._fenced(
            "side_table_insert", table=self.side_table, columns=_DEAD_LETTER_COLUMNS, structure=structure
        )

    def create_side_table(self) -> str:
        return render(
            "clickhouse",
            "side_table_create",
            table=self.side_table,
            columns=_DEAD_LETTER_COLUMNS,
            cluster=self.layout.cluster,
            engine=f"{replication(self.layout.engine)}MergeTree",
            window=deduplication_window(self.layout.engine),
        )

    def _fenced(self, template: str, **arguments: object) -> str:
        """A statement that fails if the lease belongs to another run."""
        return render("clickhouse", template, state_table=self.state_table, lease_lost=LEASE_LOST, **arguments)


_IN_CLICKHOUSE = {pa.string(): "String", pa.int32(): "Int32", pa.int64(): "Int64"}
_DEAD_LETTER_COLUMNS = {f.name: _IN_CLICKHOUSE[f.type] for f in DEAD_LETTER_ROW}


def _question(server: ClickHouseServer, sql: str, types: dict[str, str]) -> Question:
    return Question(server, sql, tuple(types), _structure(types))


def _about_rows(server: ClickHouseServer, sql: str, types: dict[str, str]) -> Question:
    """A question that is answered by numbers of rows."""
    return _question(server, sql, {**types, NUMBER: "UInt32"})


def _structure(types: dict[str, str]) -> str:
    """Names and types in the form of ClickHouse's `input` function and of external data."""
    return ", ".join(f"{quote('clickhouse', name)} {kind}" for name, kind in types.items())
