"""Change data: extracts the row and its operation from the envelope of Debezium or AWS DMS, for whole Arrow batches.

The envelope is decoded like any record, with a type that is made from the declared columns: `before` and `after` with
the row's columns, and the requested metadata. So every format can carry every envelope.

Sources: Debezium's documentation of its connectors ("change event values") and of ExtractNewRecordState; AWS's "Using
Apache Kafka as a target for AWS DMS".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, DecodeError, Decoder
from jobs.decode.envelope_shape import (
    DELETE,
    MESSAGE,
    OPERATION,
    ROW_OPS,
    TRUNCATE,
    EnvelopeRules,
    has_images,
    images,
    operation_of,
    row_type,
    wire_type,
    without_old_values,
)
from jobs.decode.extended_json import decode_documents
from jobs.decode.json_fast import Json
from jobs.decode.old_values import WithoutBadOldValues
from jobs.decode.unknown import Watch
from jobs.decode.verdicts import Verdicts
from jobs.schema.types import shown_type
from jobs.schema.with_fields import with_fields

# The kind of error of a primary-key change's insert that omits values.
MOVED = "moved"
# The headers in which the two records of a primary-key change, a delete and an insert, name each other's key.
OF_MOVES = NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"


class Enveloped:
    """A decoder of rows from change data.

    Args of the constructor:
        kind: the declared columns.
        inner: makes the format's decoder for a type and a watch.
        watch: what to do about fields of the row that have no column.
    """

    def __init__(
        self,
        kind: pa.StructType,
        rules: EnvelopeRules,
        inner: Callable[[pa.DataType, Watch | None], Decoder],
        watch: Watch | None = None,
    ) -> None:
        of_row = _of_row(rules.kind, watch)
        decoder = inner(wire_type(kind, rules), of_row)
        for in_part, operations in without_old_values(rules):
            # Of a row that is read in part, fields are unknown that have a column.
            least = inner(wire_type(kind, rules, in_part), of_row if in_part == {"before"} else None)
            decoder = WithoutBadOldValues(rules.kind, decoder, least, operations)
        self.type, self._rules, self._inner, self._row_type = kind, rules, decoder, row_type(kind, rules)
        self._documents = Json(self._row_type, watch) if rules.kind == "mongo" else None

    def decode(self, raw: pa.Array) -> Decoded:
        decoded = self._inner.decode(raw)
        envelope = decoded.values
        found = Verdicts(len(raw), decoded.errors)
        image = images(self._rules.kind)[1]
        found.unknown = decoded.unknown.within(image) if has_images(self._rules.kind) else decoded.unknown
        if self._rules.skips_tombstones:
            found.filter(_tombstones(decoded))
        operation, row = self._row(envelope, found)
        columns = [self._column(f, envelope, row, operation, found) for f in self.type]
        absent, good = pc.is_null(envelope), found.good()
        mask = absent if good is None else pc.or_(absent, pc.invert(good))
        return found.decoded(pa.StructArray.from_arrays(columns, fields=list(self.type), mask=mask))

    def _row(self, envelope: pa.Array, found: Verdicts) -> tuple[pa.Array, pa.Array]:
        """The operation (c, r, u or d) and the row after it, or, for a delete, the deleted row."""
        operation = operation_of(self._rules.kind, envelope)
        truncates = pc.equal(operation, TRUNCATE)
        if self._rules.truncates == "skip":
            found.filter_where(truncates)
        if self._rules.truncates != "apply":
            found.refuse_where(truncates, DecodeError("type", "the table was truncated"))
        found.filter_where(pc.equal(operation, MESSAGE))
        known = pc.is_in(operation, value_set=pa.array([*ROW_OPS, DELETE, TRUNCATE, MESSAGE]))
        unknown = pc.and_not(pc.is_valid(envelope), known)
        found.refuse_where(unknown, DecodeError("type", "the envelope holds no known operation"))
        deleted = pc.fill_null(pc.equal(operation, DELETE), False)
        if self._rules.kind == "debezium_flat":
            return operation, envelope
        before, after = images(self._rules.kind)
        old, new = (self._image(pc.struct_field(envelope, image)) for image in (before, after))
        without = pc.and_(pc.is_in(operation, value_set=pa.array(ROW_OPS)), pc.is_null(new))
        updates = pc.and_(without, pc.equal(operation, "u"))
        if self._rules.skips_without_row:
            found.filter_where(updates)
        found.refuse_where(without, DecodeError("missing", f"the change brings no row in {after}"))
        # DMS sends a deleted row in `data`, and the row before the change only if that is switched on.
        gone = pc.if_else(pc.is_null(old), new, old) if self._rules.kind == "dms" else old
        row = pc.if_else(deleted, gone, new)
        if self._rules.kind == "dms":
            self._refuse_changed_keys(operation, old, new, found)
        if self._documents:
            documents = decode_documents(self._documents, row)
            row, found.unknown = documents.values, documents.unknown
            for index, error in documents.errors.items():
                found.refuse(index, error)
        return operation, row

    def _refuse_changed_keys(self, operation: pa.Array, old: pa.Array, new: pa.Array, found: Verdicts) -> None:
        """DMS sends a changed key as one update, and nothing that deletes the row of the old key."""
        for column in self._rules.key & {f.name for f in self._row_type}:
            changed = pc.not_equal(*(pc.struct_field(image, [column]) for image in (old, new)))
            text = (
                f"the key column {column} was changed, and DMS sends no delete of the row with the old key: update the "
            )
            text += "row once more at the source, which brings all of it, and delete the old one by hand"
            found.refuse_where(pc.and_(pc.equal(operation, "u"), changed), DecodeError("type", text))

    def _image(self, values: pa.Array) -> pa.Array:
        """The columns of an image of the row, without fields that are only read for the metadata."""
        return values if self._documents else with_fields(values, self._row_type)

    def _column(
        self, column: pa.Field, envelope: pa.Array, row: pa.Array, operation: pa.Array, found: Verdicts
    ) -> pa.Array:
        path = self._rules.metadata.get(column.name)
        if path == OPERATION:
            return operation
        if path is not None:
            values = envelope
            for part in path.split("."):
                values = pc.struct_field(values, part)
            return with_fields(values, column.type)
        values = with_fields(pc.struct_field(row, [column.name]), column.type)
        values = self._available(values, column, operation, found)
        if not column.nullable:
            lacking = pc.and_(pc.is_null(values), pc.is_in(operation, value_set=pa.array(ROW_OPS)))
            text = f"column {column.name}: expected {shown_type(column)} not null, found null"
            found.refuse_where(lacking, DecodeError("missing", text))
        return values

    def _available(self, values: pa.Array, column: pa.Field, operation: pa.Array, found: Verdicts) -> pa.Array:
        """The values without Debezium's placeholder for large ones that a change has not touched."""
        left_out = self._rules.placeholder.held_by(values) if self._rules.kind.startswith("debezium") else None
        if left_out is None or not left_out.true_count:
            return values
        written = pc.and_(left_out, pc.is_in(operation, value_set=pa.array(ROW_OPS)))
        if self._rules.unavailable != "null":
            # Not in inserts: a primary-key change comes as an insert, and the value belongs to the old key, whose
            # delete may be in another batch, or already merged.
            stays = column.name in self._rules.may_be_unchanged
            may = pa.scalar(stays) if self._rules.moved else pc.and_(pc.equal(operation, "u"), stays)
            found.leave_unchanged_where(pc.and_(written, may), column.name)
            error = DecodeError(MOVED if stays else "missing", self._rules.refusal(column.name))
            found.refuse_where(pc.and_not(written, may), error)
        return pc.if_else(left_out, pa.scalar(None, column.type), values)


def _of_row(kind: str, watch: Watch | None) -> Watch | None:
    """The watch for the envelope's decoder, which reports only fields of the row."""
    if watch is None or kind == "mongo":
        return None
    if has_images(kind):
        image = images(kind)[1]
        return replace(watch, within=(image,), widens=frozenset((image, *path) for path in watch.widens))
    return replace(watch, passing="__")


def _tombstones(decoded: Decoded) -> list[int]:
    """Indexes of records without a value: null, or, in Connect's JSON, a null payload."""
    empty = pc.indices_nonzero(pc.is_null(decoded.values)).to_pylist()
    return [row for row in empty if row not in decoded.errors]
