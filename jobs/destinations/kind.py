"""What a kind of destination is. To write one, start here; `jobs.destinations.base` says what its tables have to do.

A kind is a package with one entry point in the group ``batchmerge.destinations`` that names a `Kind` object::

    [project.entry-points."batchmerge.destinations"]
    duckdb = "batchmerge_duckdb.kind:KIND"

Nothing else is registered anywhere: pipeline file, connections file, `plan`, `check`, `verify`, `status`, maintenance
and Dagster's assets find the kind by that name (`jobs.destinations.registry`).

What each file of a kind is called, and what is in it, `docs/write-a-destination.md` says.

Only `Kind.open` and the abstract members of `Destination` have to be written; the other members have a default that
suits a system without that feature. `jobs.destinations.reduced` has more defaults, for systems that write data and
state of a table in one transaction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from sql import render

if TYPE_CHECKING:
    from jobs.connect_import.sink import Sink
    from jobs.destinations.base import Destination
    from jobs.spec.columns import RowColumn
    from jobs.spec.pipeline import PipelineSpec
    from jobs.spec.tables import Mode, Table
    from resources.config_files.mistakes import Mistake
    from resources.connections import Connection, Connections
    from sql import Dialect

T = TypeVar("T", bound="Table")


@dataclass(frozen=True)
class Capabilities:
    """What tables of a kind can do; the engine goes by this and never by the kind's name.

    Attributes:
        modes: modes that a table may have.
        commit: how a merge commits, in one line for `plan`.
        reference: what the system calls a commit: ``snapshot id``, ``job id``. It labels `Merged.reference`.
        asset_kinds: badges of the tables in Dagster, at most three (Dagster's limit).
        struct_keys: a struct may be a key column; compared part by part.
        keeps_unchanged_columns: a merge can leave single columns of a row as they were (modes upsert, upsert_delete).
        finds_rows: Spark finds the rows of a few keys in a table at the cost of a scan (`TableReader.rows_of`).
        counts_keys_at_merge: `Destination.touched_duplicates` is cheap enough to be asked after every merge; otherwise
            only `verify` asks for duplicate keys.
        commits_together: `Destination.transaction` commits several tables of one connection at once.
        refuses: there are rows that can be landed and that its system cannot store (`jobs.destinations.refusal`).
        nullable_nested: a struct, array or map may be null in a table; otherwise those that records bring are `text`.
        tells_topics_apart: rows of a recreated topic are distinguished from those of the earlier topic of that name, or
            `Destination.check_replay` says that they cannot be.
        leases: a run holds a lease while it writes, so that a dead run leaves something behind (`Destination.leases`).
        truncates: a merge also takes the rows away that a truncation is about (`CommittedState.truncates`).
        orders_by_text: `changes.order_by` may name a text column.
        state_in_table: the committed state is part of the table, and is dropped with it.
        rolls_back: people can take a table back to an earlier commit, its committed state with it. What happens then
            is the table's option `on_rollback`: hold, replay or skip.
        rows_on_workers: rows get into a table and are read for `verify` on Spark's workers, never through the run,
            whose memory they do not need.
        upkeep: a table needs some (`Destination.maintain`).
    """

    modes: frozenset[Mode]
    commit: str
    reference: str
    asset_kinds: frozenset[str]
    struct_keys: bool = False
    keeps_unchanged_columns: bool = False
    finds_rows: bool = False
    counts_keys_at_merge: bool = False
    commits_together: bool = False
    refuses: bool = False
    nullable_nested: bool = True
    tells_topics_apart: bool = False
    leases: bool = False
    truncates: bool = False
    orders_by_text: bool = True
    state_in_table: bool = False
    rolls_back: bool = False
    rows_on_workers: bool = False
    upkeep: bool = False


class Kind(ABC, Generic[T]):
    """A kind of destination table, as its entry point gives it. One object per kind, without state.

    Attributes:
        name: ``kind:`` of the pipeline and the connections file, and the entry point's name.
        title: how people write the system's name.
        table: the model of an entry of `tables`; its field `connection` has the usual connection as default.
        connection: the model of an entry of the connections file, with ``kind: Literal["<name>"]``.
        dialect: the SQL that is run for its tables.
        failpoints: boundaries between two outside effects of a merge, in their order (`jobs.failpoints`); the crash
            tests kill a run at each.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    table: type[T]
    connection: ClassVar[type[Connection]]
    capabilities: ClassVar[Capabilities]
    dialect: ClassVar[Dialect]
    failpoints: ClassVar[Sequence[str]] = ()

    @abstractmethod
    def open(self, pipeline: str, spec: PipelineSpec, table: T, connections: Connections) -> Destination:
        """The destination of a table. Imports what it needs here; asks no system anything yet.

        Raises:
            ConfigurationError: there is no such connection (`Connections.get` says so).
        """

    def columns(self, spec: PipelineSpec, table: T) -> list[RowColumn]:
        """The columns of the table's rows, under the names that they have there.

        From the pipeline file alone: Dagster shows them before anything was connected to.
        """
        from jobs.spec.columns import row_columns

        return row_columns(spec, table.metadata_columns)

    def mistakes(self, spec: PipelineSpec, table: T) -> Iterator[Mistake]:
        """What the system cannot do with these columns, for `batchmerge check`: paths go from the table's entry on.

        From the pipeline file alone. Columns that options name and the table lacks are reported elsewhere
        (`Table.named_columns`): they are passed over here.
        """
        del spec, table
        return iter(())

    def refuses(self, spec: PipelineSpec, table: T) -> Iterator[str]:
        """Columns with rows that are certain to be refused, in sentences for `check` and `plan`.

        From the pipeline file alone.
        """
        del spec, table
        return iter(())

    def statement(self, spec: PipelineSpec, table: T) -> str:
        """The statement that brings changes into the table, for people (`plan`, Dagster); empty where it is none.

        From the pipeline file alone: what only a run knows (names of its own, bounds of keys) stands there as ``…``.
        Left as it is: the template ``append`` or ``merge``.
        """
        return self.text("append" if table.mode == "append" else "merge", spec, table)

    def text(self, template: str, spec: PipelineSpec, table: T) -> str:
        """A statement about the table, in the kind's dialect.

        Templates know ``table`` and ``kept_deletes`` (paths; of the second None where there is none), ``columns`` and
        ``keys`` (names) and ``order_by`` (a name or None).
        """
        columns, kept_deletes = self.columns(spec, table), self.kept_deletes(spec, table)
        return render(
            self.dialect,
            template,
            table=table.table.split("."),
            kept_deletes=kept_deletes.split(".") if kept_deletes else None,
            columns=[c.name for c in columns],
            keys=[c.name for c in columns if c.is_key],
            order_by=spec.changes.ordered_by,
        )

    def kept_deletes(self, spec: PipelineSpec, table: T) -> str | None:
        """The table that keeps the order of deletes, so that an older change cannot bring a row back; for kinds that
        have no other place for it."""
        return f"{table.table}__tombstones" if spec.changes.ordered_by and table.loses_rows else None

    def sink(self) -> Sink | None:
        """The Kafka Connect sinks of the system, for `batchmerge import`; None: none that it knows."""
        return None
