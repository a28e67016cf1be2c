"""Landed changes straight from the data files of the intermediate table, as Arrow, without a Spark plan.

For destinations outside Iceberg, whose rows leave the JVM anyway: a reader opens the few files that hold its part of
a batch (pruned by batch, position and offsets), which costs much less than a Spark scan that passes rows to Python.
What needs a join with other landed rows (replay of touched keys) is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, In, IsNull, LessThan
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import DataScan, StaticTable, Table
from pyiceberg.table.metadata import TableMetadata

from jobs.batch import LandedBatch
from jobs.changes.columns import CHANGES, POSITIONS, REVISION
from jobs.changes.landed_rows import LandedRows
from jobs.changes.routing import RouteFilter
from jobs.groups import filled, groups
from jobs.iceberg.readable import readable
from jobs.offsets import OffsetRange, TopicPartition
from resources.iceberg_errors import catalog_errors

# Type checkers see the constructors of pydantic's base class instead of these classes' own.
_IS: Any = EqualTo
_FROM: Any = GreaterThanOrEqual
_BELOW: Any = LessThan
_ONE_OF: Any = In
_ABSENT: Any = IsNull

FIELDS = ("key", "value", "op", "partitionTime", "i", "batchNumber", "kafka", "kept")


@dataclass(frozen=True)
class LandedFiles:
    """The landed changes of one snapshot of the intermediate table; travels to Spark's workers.

    Attributes:
        metadata: the intermediate table's. Workers get only what they need: all of it grows with every snapshot. They
            cannot read it themselves, since its file is deleted fifty commits later.
        storage: the client of its file system. May hold secrets: never log it.
        operations: only changes with one of these.
        route: only changes that are routed to the table; None: all.
        revision: only records that this batch has read again; None: only first readings.
    """

    identifier: str
    metadata: TableMetadata = field(repr=False, compare=False)
    storage: FileIO = field(repr=False)
    snapshot: int
    operations: tuple[str, ...] = CHANGES
    route: RouteFilter | None = None
    revision: int | None = None

    @classmethod
    def up_to(cls, newest: LandedBatch, landed: LandedRows) -> LandedFiles:
        """The files that hold this batch and all before it."""
        # In this order: the table loaded afterwards contains the snapshot.
        snapshot, table = landed.snapshot_with(newest), landed.catalog.require(landed.identifier)
        return cls(landed.identifier, table.metadata, table.io, snapshot)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "metadata": readable(self.metadata, self.snapshot)}

    def taking(self, operations: Sequence[str], route: RouteFilter | None) -> LandedFiles:
        return replace(self, operations=tuple(operations), route=route)

    def read(self, where: BooleanExpression) -> LandedSlice:
        """The rows that match (`of_batches`, `of_partition`), ordered by batch and position.

        Raises:
            StorageError, Unavailable: the files cannot be read.
        """
        with catalog_errors(self.identifier):
            found = self._rows(where).to_arrow()
        return LandedSlice.of(found).routed_by(self.route).in_order()

    def in_pieces(self, where: BooleanExpression, rows: int, memory: int) -> Iterator[LandedSlice]:
        """The rows that match, in no order, in pieces of about so many rows or bytes; besides it one file in memory.

        Raises:
            StorageError, Unavailable: the files cannot be read.
        """
        with catalog_errors(self.identifier):
            scan = self._rows(where)
            reader = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter, scan.case_sensitive)
            # One task after another: the reader reads all its files ahead, and keeps them.
            found = (pa.table(batch) for task in scan.plan_files() for batch in reader.to_record_batches([task]))
            for some in groups(found, lambda table: filled(table.num_rows, table.nbytes, rows, memory), 1):
                yield LandedSlice.of(pa.concat_tables(some, promote_options="permissive")).routed_by(self.route)

    def _rows(self, where: BooleanExpression) -> DataScan:
        table = self.table()
        names = {f.name for f in table.schema().fields}
        return self.scan(table, where, tuple(name for name in FIELDS if name in names))

    def table(self) -> StaticTable:
        """The intermediate table as it was when it was loaded."""
        return StaticTable(("landed",), self.metadata, "", self.storage, NoopCatalog("landed"))

    def scan(self, table: Table, where: BooleanExpression, fields: tuple[str, ...]) -> DataScan:
        """The landed changes with these operations, without dead letters: first readings, or those of `revision`."""
        read = _ABSENT(REVISION.name) if self.revision is None else _IS(REVISION.name, self.revision)
        changes = And(where, _ONE_OF("op", self.operations), _ABSENT("error"), read)
        return table.scan(changes, selected_fields=fields, snapshot_id=self.snapshot)


@dataclass(frozen=True)
class LandedSlice:
    """Landed rows by column of the intermediate table (`jobs.changes.columns`), whole arrays of one length."""

    columns: Mapping[str, pa.Array]

    @classmethod
    def of(cls, rows: pa.Table) -> LandedSlice:
        return cls({name: whole_array(rows[name]) for name in rows.column_names})

    @classmethod
    def joined(cls, slices: Iterable[LandedSlice]) -> LandedSlice:
        """The rows of all slices; some may lack columns that others have."""
        return cls.of(pa.concat_tables((pa.table(dict(one.columns)) for one in slices), promote_options="permissive"))

    def __len__(self) -> int:
        return len(self.columns["i"])

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.columns.values())

    def at(self, path: Sequence[str]) -> pa.Array:
        """The column at ``key.<name>``, ``value.<name>``, ``kafka.<name>`` or a column itself."""
        head, *parts = path
        return pc.struct_field(self.columns[head], parts) if parts else self.columns[head]

    def plain(self, path: Sequence[str]) -> pa.Array:
        """As `at`, but decoded where it was read as a dictionary."""
        found = self.at(path)
        return found.dictionary_decode() if pa.types.is_dictionary(found.type) else found

    def operations(self, deletes_are_rows: bool) -> pa.Array:
        """The operations, as `Reduction` names them: where deletes are rows, every change is an insert."""
        return pa.repeat("insert", len(self)) if deletes_are_rows else self.plain(("op",))

    def routed_by(self, route: RouteFilter | None) -> LandedSlice:
        if route is None:
            return self
        has = self.columns
        taken = route.mask(self.at(("kafka", "topic")), has.get("key"), has.get("value"), has["op"])
        return self.filter(taken)

    def filter(self, wanted: pa.Array) -> LandedSlice:
        return self._all(lambda array: array.filter(wanted))

    def take(self, numbers: pa.Array) -> LandedSlice:
        """The rows with these numbers, which are ascending."""
        return self if len(numbers) == len(self) else self._all(lambda array: array.take(numbers))

    def in_order(self) -> LandedSlice:
        """By batch and position; rows that one task has landed are in this order already."""
        batches, places = (self.columns[name].to_numpy() for name in ("batchNumber", "i"))
        later, same = np.diff(batches) > 0, np.diff(batches) == 0
        if np.all(later | (same & (np.diff(places) >= 0))):
            return self
        order = pa.array(np.lexsort((places, batches)))
        return self._all(lambda array: array.take(order))

    def without(self, others: Sequence[LandedSlice]) -> LandedSlice:
        """The rows of records of which the others have no reading."""
        if not any(map(len, others)):
            return self
        left = pa.array(~np.isin(self._places, np.concatenate([other._places for other in others])))
        return self.filter(left)

    @property
    def _places(self) -> np.ndarray:
        """Batch and position as one number."""
        batches, places = (self.columns[name].to_numpy().astype(np.int64) for name in ("batchNumber", "i"))
        found: np.ndarray = batches * POSITIONS + places
        return found

    def _all(self, function: Callable[[pa.Array], pa.Array]) -> LandedSlice:
        return replace(self, columns={name: function(array) for name, array in self.columns.items()})


def whole_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array, without a copy if it is one already."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def of_batches(first: int, last: int) -> BooleanExpression:
    """The rows of these batches, both included."""
    return _within("batchNumber", first, last + 1)


def of_partition(first: int, last: int, tp: TopicPartition, offsets: OffsetRange) -> BooleanExpression:
    """The rows of these offsets in these batches."""
    return And(
        of_batches(first, last),
        _IS("kafka.topic", tp.topic),
        _IS("kafka.partition", tp.partition),
        _within("kafka.offset", offsets.start, offsets.end),
    )


def _within(name: str, first: int, end: int) -> BooleanExpression:
    return And(_FROM(name, first), _BELOW(name, end))
