"""Kafka records to landed rows, one Arrow batch at a time: what Spark's Python workers run. Pure over Arrow data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.batch import Moves
from jobs.changes.columns import FILTERED, MOVE, UNCHANGED
from jobs.changes.routing import RouteFilter, matched_by_none
from jobs.decode.base import DecodeError
from jobs.decode.envelope_shape import TRUNCATE
from jobs.decode.formed import formed
from jobs.decode.verdicts import COLUMNS, Verdicts
from jobs.landing.batch_positions import BatchPositions
from jobs.landing.coordinates import kafka_struct
from jobs.landing.moves import MoveReader, moves_among
from jobs.landing.new_tables import STAGE as ROUTE
from jobs.landing.new_tables import NameRule
from jobs.landing.places import BATCH, POSITION, Places
from jobs.landing.registry_schemas import SchemaIds
from jobs.landing.row_columns import error_column, only_good, records_read, unchanged_column
from jobs.landing.task_report import TaskReport
from jobs.landing.topic_decoder import TopicDecoder
from jobs.schema.with_fields import with_fields
from jobs.spec.metadata import Metadata
from jobs.spec.transform import KEY

RESULT = "result"
_BAD_KEY = "key"
_BAD_VALUE = "value"


@dataclass(frozen=True)
class Operations:
    """The op mapping: field of the value, and which of its values mean what."""

    field: str
    insert: tuple[str, ...]
    update: tuple[str, ...]
    delete: tuple[str, ...]

    @property
    def removing(self) -> tuple[str, ...]:
        """The values of records that take rows away, which may bring nothing but a key, or not even that."""
        return (*self.delete, TRUNCATE)


class Truncation(NamedTuple):
    """Columns of the value: which holds the operation of its envelope, and which the order of changes."""

    operation: str
    order: str


class DeleteOrder(NamedTuple):
    """Columns of the value: which orders changes, and which others of the row a delete may bring beside its key.

    Attributes:
        shown: which records the tables that show deletes take; None: one of them takes all.
    """

    by: str
    others: tuple[str, ...]
    shown: tuple[RouteFilter, ...] | None


@dataclass(frozen=True)
class RecordReader:
    """Turns Arrow batches of Kafka records into Arrow batches of landed rows.

    In: key, value (binary), topic, partition, offset, timestamp. Out: the columns of `jobs.changes.columns`, without
    the three that are constant over a batch.

    Attributes:
        key_decoder: decodes keys.
        key_columns: names of the key's columns, taken from the decoded key or value (`key_from_value`); none: no key.
        positions: gives records their position in the batch; or all their places, if they are read once more.
        landed_at: the time of landing, in milliseconds.
        metadata: what the tables ask for beside a record's coordinates.
        routes: which records each table takes; None if one of them takes all.
        value_key_decoder: decodes the key's columns of values that do not decode as a whole; None: nothing can.
        schema_ids: finds the ids of schemas in records; None: they have none.
        skips_tombstones: records without a value are filtered; otherwise they are deletes.
        skips_unrouted: records that no table takes are filtered, not bad.
        new_tables: what becomes of records that no table takes, where records name tables; None: they do not.
        required: columns that a transform must not give as null.
        forms: the columns of a transform's result, if some have a form (`jobs.decode.forms`).
        filtered_error: makes dead letters of filtered records; None: their op is `filtered`.
        float_order: the column that orders changes, if it can be NaN, which each system orders differently.
        truncation: how a record that truncates the table is known; None: there are none.
        delete_order: how deletes are known that could never win; None: there are none.
        shows_deletes: whether a table does.
        names_unchanged: the rows have a column (`kept`) that names the columns that a change leaves as they were.
        moves: reads the column `move`; None: the rows have none.
    """

    key_decoder: TopicDecoder | None
    value_decoder: TopicDecoder
    key_columns: tuple[str, ...]
    key_from_value: bool
    refuse_null_keys: bool
    operations: Operations | None
    positions: BatchPositions | Places
    value_type: pa.DataType
    kafka_type: pa.DataType
    landed_at: int = 0
    metadata: tuple[Metadata, ...] = ()
    routes: tuple[RouteFilter, ...] | None = None
    value_key_decoder: TopicDecoder | None = None
    schema_ids: SchemaIds | None = None
    skips_tombstones: bool = False
    skips_unrouted: bool = False
    new_tables: NameRule | None = None
    required: tuple[str, ...] = ()
    forms: pa.StructType | None = None
    names_unchanged: bool = False
    moves: MoveReader | None = None
    float_order: str | None = None
    truncation: Truncation | None = None
    delete_order: DeleteOrder | None = None
    shows_deletes: bool = False
    filtered_error: DecodeError | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All batches of one task as landed rows."""
        return (rows for rows, _ in self.with_reports(batches))

    def with_reports(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, TaskReport]]:
        """All batches of one task as landed rows, each with what came in, counted before it is decoded."""
        for raw in batches:
            batch = self.positions.spread(raw)
            if batch.num_rows:
                read = records_read(batch, self.landed_at)
                rows, found = self._read(batch)
                yield rows, replace(found, read=read, schema_ids=self.schema_ids(batch) if self.schema_ids else {})

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """One batch of records as landed rows, in the same order."""
        return self._read(self.positions.spread(batch))[0]

    def _read(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, TaskReport]:
        value, verdicts = self._value(batch)
        value = with_fields(value, self.value_type)
        if self.truncation:
            self._filter_truncations(self.truncation, value, verdicts)
        bad = frozenset(verdicts.errors)
        if self.skips_tombstones:
            verdicts.filter_where(pc.is_null(value), but=bad)
        key, readable = self._key(batch, value, verdicts)
        self._refuse_nan(value, verdicts)
        op = self._operation(value, verdicts)
        self._refuse_unordered_deletes(batch.column("topic"), readable, value, op, verdicts)
        named = dict[str, int]()
        if self.routes is not None:
            left = matched_by_none(self.routes, batch.column("topic"), readable, value, op)
            if self.skips_unrouted:
                nowhere = self.new_tables.takes_none(left, readable, value) if self.new_tables else left
                verdicts.filter_where(nowhere, but=self._may_be_routed(verdicts, bad))
            if self.new_tables:
                named = self.new_tables.judge(left, key, value, verdicts)
            elif not self.skips_unrouted:
                verdicts.refuse_where(left, DecodeError("NoTable", "no table takes this record", ROUTE))
        if self.filtered_error:
            verdicts.refuse_filtered(self.filtered_error)
        good = verdicts.good()
        columns: dict[str, pa.Array] = {}
        if key is not None:
            # Dead letters get a key too, if it can be read: from here on the tables' row of this key is out of date.
            columns["key"] = key
        columns["value"] = only_good(value, good)
        columns["op"] = only_good(op, good)
        if verdicts.filtered:
            filtered = pa.array([row in verdicts.filtered for row in range(batch.num_rows)])
            columns["op"] = pc.if_else(filtered, pa.scalar(FILTERED), columns["op"])
        columns["partitionTime"] = batch.column("timestamp")
        columns["i"] = batch.column(POSITION)
        if BATCH in batch.schema.names:
            columns["batchNumber"] = batch.column(BATCH)
        columns["kafka"] = with_fields(kafka_struct(batch, self.metadata, self.landed_at), self.kafka_type)
        columns["error"] = error_column(batch, verdicts.errors)
        if self.names_unchanged:
            columns[UNCHANGED.name] = unchanged_column(verdicts.unchanged, batch.num_rows)
        if self.moves:
            columns[MOVE.name] = self.moves.column(batch)
        report = TaskReport(
            fields=verdicts.unknown,
            names={name: columns["i"][row].as_py() for name, row in named.items()},
            columns=self.new_tables.columns(key, columns["value"]) if self.new_tables else {},
            truncated_below=verdicts.truncated_below,
            moves=moves_among(columns[MOVE.name], op, verdicts.errors.values()) if self.moves else Moves(),
        )
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)), report

    def _value(self, batch: pa.RecordBatch) -> tuple[pa.Array, Verdicts]:
        """The decoded value, or what the transform has made of it (`jobs.landing.transform`)."""
        if RESULT not in batch.schema.names:
            verdicts = Verdicts(batch.num_rows)
            return self._decoded(_BAD_VALUE, self.value_decoder, batch, verdicts), verdicts
        verdicts = Verdicts.from_columns(*(batch.column(name) for name in COLUMNS.names))
        value = batch.column(RESULT)
        # A delete may have only the key columns, so nulls in the others are no error.
        rows = pc.and_not(pc.is_valid(value), self._says_delete(value))
        for name in self.required:
            lacking = pc.and_(rows, pc.is_null(pc.struct_field(value, [name])))
            text = f"column {name}: expected a value, found null"
            verdicts.refuse_where(lacking, DecodeError("missing", text, "transform"))
        return self._formed(value, verdicts), verdicts

    def _formed(self, value: pa.Array, verdicts: Verdicts) -> pa.Array:
        """What a transform has made, by the forms of its columns."""
        if self.forms is None:
            return value
        found, errors = formed(value, self.forms)
        for row, error in errors.items():
            verdicts.refuse(row, error.at("transform"))
        return found

    @staticmethod
    def _decoded(stage: str, decoder: TopicDecoder, batch: pa.RecordBatch, verdicts: Verdicts) -> pa.Array:
        decoded = decoder.decode(batch, stage)
        verdicts.add(decoded, stage)
        return decoded.values

    def _key(
        self, batch: pa.RecordBatch, value: pa.Array, verdicts: Verdicts
    ) -> tuple[pa.Array | None, pa.Array | None]:
        """The key, and what can be read of it for routes, also where a column of it may not be null."""
        if not self.key_columns:
            return None, None
        if self.key_from_value:
            origin = self._with_keys_of_bad(batch, value, verdicts)
            missing = "the value is null (a tombstone), so it has no key columns"
        else:
            assert self.key_decoder is not None
            evaluated = KEY in batch.schema.names
            origin = batch.column(KEY) if evaluated else self._decoded(_BAD_KEY, self.key_decoder, batch, verdicts)
            missing = "the record has no key"
        verdicts.refuse_where(pc.is_null(origin), DecodeError("NullKey", missing, _BAD_KEY))
        parts = [pc.struct_field(origin, [name]) for name in self.key_columns]
        present, absent = pc.is_valid(origin), pc.is_null(origin)
        if self.refuse_null_keys:
            for name, part in zip(self.key_columns, parts, strict=True):
                null = DecodeError("NullKey", f"key column {name} is null or missing", _BAD_KEY)
                verdicts.refuse_where(pc.and_(present, pc.is_null(part)), null)
                absent = pc.or_(absent, pc.is_null(part))
        fields = [pa.field(n, p.type) for n, p in zip(self.key_columns, parts, strict=True)]
        key, readable = (pa.StructArray.from_arrays(parts, fields=fields, mask=m) for m in (absent, pc.is_null(origin)))
        return key, readable

    def _may_be_routed(self, verdicts: Verdicts, bad: Collection[int]) -> Collection[int]:
        """Records of which nobody knows whether a table takes them: bad ones, and those whose key cannot be read, if a
        route looks at keys. A record without a key is for no table: those of others may need none."""
        if not any(route.path and route.path[0] == "key" for route in self.routes or ()):
            return bad
        unread = (row for row, e in verdicts.errors.items() if e.stage == _BAD_KEY and e.kind != "NullKey")
        return {*bad, *unread}

    def _with_keys_of_bad(self, batch: pa.RecordBatch, value: pa.Array, verdicts: Verdicts) -> pa.Array:
        """The values, where bad ones have the key's columns if these can be read."""
        bad = [row for row, error in verdicts.errors.items() if error.stage == _BAD_VALUE]
        if not bad or self.value_key_decoder is None:
            return value
        found = self.value_key_decoder.decode(batch, _BAD_VALUE, pa.array(bad)).values
        # One array of all values, then of the bad ones: each row is taken from where it can be read.
        places = np.arange(len(value))
        places[bad] = len(value) + np.arange(len(bad))
        parts = [
            pa.concat_arrays([part, pc.struct_field(found, [name]).cast(part.type)]).take(pa.array(places))
            for name in self.key_columns
            for part in [pc.struct_field(value, [name])]
        ]
        absent = pa.concat_arrays([pc.is_null(value), pc.is_null(found)]).take(pa.array(places))
        return pa.StructArray.from_arrays(parts, names=list(self.key_columns), mask=absent)

    def _refuse_nan(self, value: pa.Array, verdicts: Verdicts) -> None:
        if self.float_order:
            not_a_number = DecodeError("range", f"column {self.float_order}: NaN has no place in an order", _BAD_VALUE)
            verdicts.refuse_where(pc.is_nan(pc.struct_field(value, self.float_order)), not_a_number)

    @staticmethod
    def _filter_truncations(columns: Truncation, value: pa.Array, verdicts: Verdicts) -> None:
        """Filters truncations, which have neither key nor row; only their order is reported."""
        truncates = pc.equal(pc.struct_field(value, columns.operation), TRUNCATE)
        order = pc.struct_field(value, columns.order)
        lacking = pc.and_(truncates, pc.is_null(order))
        verdicts.refuse_where(lacking, DecodeError("missing", f"the truncation brings no {columns.order}", _BAD_VALUE))
        verdicts.filter_where(pc.and_(truncates, pc.is_valid(order)))
        verdicts.truncated_below = pc.max(order.filter(truncates)).as_py()

    def _operation(self, value: pa.Array, verdicts: Verdicts) -> pa.Array:
        tombstone = pc.is_null(value)
        if self.operations is None:
            return pc.if_else(tombstone, pa.scalar("delete"), pa.scalar("upsert"))
        found = pc.struct_field(value, self.operations.field).cast(pa.string())
        op = pa.nulls(len(value), pa.string())
        for name in ("insert", "update", "delete"):
            matches = pc.is_in(found, value_set=pa.array(getattr(self.operations, name), pa.string()))
            op = pc.if_else(matches, pa.scalar(name), op)
        unknown = pc.and_(pc.invert(tombstone), pc.is_null(op))
        text = f"{self.operations.field} holds no operation of the op mapping"
        verdicts.refuse_where(unknown, DecodeError("UnknownOperation", text, _BAD_VALUE))
        return pc.if_else(tombstone, pa.scalar("delete"), op)

    def _refuse_unordered_deletes(
        self, topics: pa.Array, key: pa.Array | None, value: pa.Array, op: pa.Array, verdicts: Verdicts
    ) -> None:
        """Refuses deletes that bring nothing but their key: no change of it would lose to them, and no table show them.

        Not those whose row had no order, nor tombstones: these follow the record that says the delete.
        """
        if self.delete_order is None:
            return
        bare = pc.and_(pc.equal(op, "delete"), pc.is_valid(value))
        for column in (self.delete_order.by, *self.delete_order.others):
            if not pc.any(bare).as_py():  # few batches have any
                return
            bare = pc.and_(bare, pc.is_null(pc.struct_field(value, column)))
        if self.delete_order.shown is not None:
            bare = pc.and_not(bare, matched_by_none(self.delete_order.shown, topics, key, value, op))
        text = f"the delete brings no {self.delete_order.by}"
        verdicts.refuse_where(bare, DecodeError("missing", text, _BAD_VALUE))

    def _says_delete(self, value: pa.Array) -> pa.Array:
        if self.operations is None:
            return pa.repeat(False, len(value))
        found = pc.struct_field(value, self.operations.field).cast(pa.string())
        return pc.is_in(found, value_set=pa.array(self.operations.removing, pa.string()))
