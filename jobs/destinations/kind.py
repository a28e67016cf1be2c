"""The interface of a kind of destination. To write one, start here; its tables implement `jobs.destinations.base`.

A kind is a package with one entry point in the group ``batchmerge.destinations`` that names a `Kind` object::

    [project.entry-points."batchmerge.destinations"]
    duckdb = "batchmerge_duckdb.kind:KIND"

Nothing else has to be registered: pipeline file, connections file, `plan`, `check`, `verify`, `status`, maintenance
and Dagster's assets find the kind by that name (`jobs.destinations.registry`).

`docs/write-a-destination.md` describes the files of a kind.

Only `Kind.open` and the abstract members of `Destination` have to be written; the other members have defaults for a
system without that feature. `jobs.destinations.reduced` has more defaults, for systems that write data and state of a
table in one transaction.
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
    """What tables of a kind can do; the engine decides by this and never by the kind's name.

    Attributes:
        modes: modes that a table may have.
        commit: how a merge commits, in one line for `plan`.
        reference: what the system calls a commit: ``snapshot id``, ``job id``. It labels `Merged.reference`.
        asset_kinds: badges of the tables in Dagster, at most three (Dagster's limit).
        struct_keys: a struct may be a key column; it is compared field by field.
        keeps_unchanged_columns: a merge can leave single columns of a row unchanged (modes upsert, upsert_delete).
        finds_rows: Spark can find the rows of a few keys in a table by one scan (`TableReader.rows_of`).
        counts_keys_at_merge: `Destination.touched_duplicates` is cheap enough to be called after every merge; otherwise
            only `verify` searches for duplicate keys.
        commits_together: `Destination.transaction` commits several tables of one connection at once.
        refuses: some rows can be landed that its system cannot store (`jobs.destinations.refusal`).
        nullable_nested: a struct, array or map may be null in a table; otherwise such columns, if records bring them,
            become `text`.
        tells_topics_apart: rows of a recreated topic are distinguished from those of the earlier topic of that name, or
            `Destination.check_replay` reports that they cannot be.
        leases: a run holds a lease while it writes, by which others notice a dead run (`Destination.leases`).
        truncates: a merge also deletes the rows that a truncation removed (`CommittedState.truncates`).
        orders_by_text: `changes.order_by` may name a text column.
        state_in_table: the committed state is part of the table, and is dropped with it.
        rolls_back: people can roll a table back to an earlier commit, and its committed state with it. What happens
            then is the table's option `on_rollback`: hold, replay or skip.
        rows_on_workers: Spark's workers write and (for `verify`) read all rows, so that they need no memory of the run.
        upkeep: a table needs maintenance (`Destination.maintain`).
        loads_landed_files: its system may load the landed files of a pipeline itself, so they have the intermediate
            table's schema in every detail.
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
    loads_landed_files: bool = False


class Kind(ABC, Generic[T]):
    """A kind of destination table: the object that its entry point names. One object per kind, without state.

    Attributes:
        name: ``kind:`` of the pipeline and the connections file, and the entry point's name.
        title: the system's name for people.
        table: the model of an entry of `tables`; its field `connection` has the usual connection as default.
        connection: the model of an entry of the connections file, with ``kind: Literal["<name>"]``.
        dialect: of the SQL for its tables.
        failpoints: boundaries between two outside effects of a merge, in order (`jobs.failpoints`); the crash tests
            kill a run at each.
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
        """The destination of a table. Imports what it needs here; connects to no system yet.

        Raises:
            ConfigurationError: there is no such connection (`Connections.get` says so).
        """

    def columns(self, spec: PipelineSpec, table: T) -> list[RowColumn]:
        """The columns of the table's rows, with their names in the table.

        From the pipeline file alone: Dagster shows them before any connection exists.
        """
        from jobs.spec.columns import row_columns

        return row_columns(spec, table)

    def mistakes(self, spec: PipelineSpec, table: T) -> Iterator[Mistake]:
        """What the system cannot do with these columns, for `batchmerge check`; paths begin below the table's entry.

        From the pipeline file alone. Columns that options name and the table lacks are reported elsewhere
        (`Table.named_columns`); ignore them here.
        """
        del spec, table
        return iter(())

    def warnings(self, spec: PipelineSpec, table: T) -> Iterator[str]:
        """What is valid and probably not intended, as sentences for `check` and `plan`: columns of which rows will
        certainly be refused, options without effect.

        From the pipeline file alone.
        """
        del spec, table
        return iter(())

    def statement(self, spec: PipelineSpec, table: T) -> str:
        """The statement that writes changes to the table, for people (`plan`, Dagster); empty if it is not SQL.

        From the pipeline file alone: what only a run knows (its own names, bounds of keys) is shown as ``…``.
        Default: the template ``append`` or ``merge``.
        """
        return self.text("append" if table.mode == "append" else "merge", spec, table)

    def text(self, template: str, spec: PipelineSpec, table: T) -> str:
        """A statement about the table, in the kind's dialect.

        Templates get ``table`` and ``kept_deletes`` (paths; the second may be None), ``columns`` and ``keys`` (names)
        and ``order_by`` (a name or None).
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
        do not keep it in the table itself."""
        return f"{table.table}__tombstones" if spec.changes.ordered_by and table.loses_rows else None

    def sink(self) -> type[Sink] | None:
        """The system's Kafka Connect sinks that `batchmerge import` supports; None: none."""
        return None
