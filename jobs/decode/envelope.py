"""Change data: extracts the row and its operation from the envelope of Debezium or AWS DMS, for whole Arrow batches.

The envelope is decoded like any record, with a type that is made from the declared columns: `before` and `after` with
the row's columns, and the requested metadata. So every format can carry every envelope.

Sources: Debezium's documentation of its connectors ("change event values") and of ExtractNewRecordState; AWS's "Using
Apache Kafka as a target for AWS DMS".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, DecodeError, Decoder
from jobs.decode.extended_json import decode_documents
from jobs.decode.json_dialect import JsonDialect
from jobs.decode.json_fast import Json
from jobs.decode.unavailable import Placeholder
from jobs.decode.unknown import Watch
from jobs.decode.verdicts import Verdicts
from jobs.schema.types import as_text, field_text, is_wider, type_name
from jobs.schema.with_fields import with_fields
from resources.errors import ConfigurationError

OPERATION = "op"
_ROW_OPS, _DELETE, TRUNCATE, _MESSAGE = ("c", "r", "u"), "d", "t", "m"
# The kind of error of a primary-key change's insert that omits values.
MOVED = "moved"
# The headers in which the two records of a primary-key change, a delete and an insert, name each other's key.
OF_MOVES = NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
_DMS = {"load": "r", "insert": "c", "update": "u", "delete": "d", "truncate-table": "t"}


@dataclass(frozen=True)
class EnvelopeRules:
    """The options of an envelope in a pipeline file (`jobs.spec.envelope`).

    Attributes:
        unavailable: what to do with a record whose value is Debezium's placeholder: `refuse` or `null`.
        may_be_unchanged: columns that an update with the placeholder leaves unchanged instead.
        moved: an insert leaves them unchanged too, because their values are known from the old key
            (`jobs.dead_letters`).
    """

    kind: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    skips_tombstones: bool = True
    truncates: str = "refuse"
    skips_without_row: bool = False
    unavailable: str = "refuse"
    placeholder: Placeholder = field(default_factory=Placeholder)
    may_be_unchanged: frozenset[str] = frozenset()
    moved: bool = False
    dialect: JsonDialect = field(default_factory=JsonDialect)

    def refusal(self, column: str) -> str:
        """Why an omitted value makes a bad record: in a new row also if the column `may_be_unchanged`."""
        what = f"column {column}: the change does not bring its value"
        if column in self.may_be_unchanged:
            keyed = "the primary key was changed, and the landed changes of the old key do not say it"
            remedy = "let Debezium send the row again (incremental snapshot); REPLICA IDENTITY FULL sends all values"
            return f"{what}: {keyed}; {remedy}"
        return f"{what}, and a key column or one that is `not null` keeps none" if self.may_be_unchanged else what


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
        self._setup(kind, rules, inner(wire_type(kind, rules), _of_row(rules.kind, watch)), watch)

    def _setup(self, kind: pa.StructType, rules: EnvelopeRules, inner: Decoder, watch: Watch | None) -> None:
        self._type, self._rules, self._inner, self._watch = kind, rules, inner, watch
        self._row_type = _row_type(kind, rules)
        self._documents = Json(self._row_type, watch) if rules.kind == "mongo" else None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self._type, self._rules, self._inner, self._watch)

    @property
    def type(self) -> pa.DataType:
        return self._type

    def decode(self, raw: pa.Array) -> Decoded:
        decoded = self._inner.decode(raw)
        envelope = decoded.values
        found = Verdicts(len(raw), decoded.errors)
        image = _images(self._rules.kind)[1]
        found.unknown = decoded.unknown.within([image]) if _has_images(self._rules.kind) else decoded.unknown
        if self._rules.skips_tombstones:
            found.filter(_tombstones(decoded))
        operation, row = self._row(envelope, found)
        columns = [self._column(f, envelope, row, operation, found) for f in self._type]
        absent, good = pc.is_null(envelope), found.good()
        mask = absent if good is None else pc.or_(absent, pc.invert(good))
        return found.decoded(pa.StructArray.from_arrays(columns, fields=list(self._type), mask=mask))

    def _row(self, envelope: pa.Array, found: Verdicts) -> tuple[pa.Array, pa.Array]:
        """The operation (c, r, u or d) and the row after it, or, for a delete, the deleted row."""
        operation = _operation(self._rules.kind, envelope)
        truncates = pc.equal(operation, TRUNCATE)
        if self._rules.truncates == "skip":
            found.filter_where(truncates)
        if self._rules.truncates != "apply":
            found.refuse_where(truncates, DecodeError("type", "the table was truncated"))
        found.filter_where(pc.equal(operation, _MESSAGE))
        known = pc.is_in(operation, value_set=pa.array([*_ROW_OPS, _DELETE, TRUNCATE, _MESSAGE]))
        unknown = pc.and_not(pc.is_valid(envelope), known)
        found.refuse_where(unknown, DecodeError("type", "the envelope holds no known operation"))
        deleted = pc.fill_null(pc.equal(operation, _DELETE), False)
        if self._rules.kind == "debezium_flat":
            return operation, envelope
        before, after = _images(self._rules.kind)
        old, new = (self._image(pc.struct_field(envelope, image)) for image in (before, after))
        without = pc.and_(pc.is_in(operation, value_set=pa.array(_ROW_OPS)), pc.is_null(new))
        updates = pc.and_(without, pc.equal(operation, "u"))
        if self._rules.skips_without_row:
            found.filter_where(updates)
        found.refuse_where(without, DecodeError("missing", f"the change brings no row in {after}"))
        # DMS sends a deleted row in `data`, and the row before the change only if that is switched on.
        gone = pc.if_else(pc.is_null(old), new, old) if self._rules.kind == "dms" else old
        row = pc.if_else(deleted, gone, new)
        if self._documents:
            documents = decode_documents(self._documents, row)
            row, found.unknown = documents.values, documents.unknown
            for index, error in documents.errors.items():
                found.refuse(index, error)
        return operation, row

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
        values = with_fields(pc.struct_field(row, column.name), column.type)
        values = self._available(values, column, operation, found)
        if not column.nullable:
            lacking = pc.and_(pc.is_null(values), pc.is_in(operation, value_set=pa.array(_ROW_OPS)))
            text = f"column {column.name}: expected {type_name(column.type)} not null, found null"
            found.refuse_where(lacking, DecodeError("missing", text))
        return values

    def _available(self, values: pa.Array, column: pa.Field, operation: pa.Array, found: Verdicts) -> pa.Array:
        """The values without Debezium's placeholder for large ones that a change has not touched."""
        left_out = self._rules.placeholder.held_by(values) if self._rules.kind.startswith("debezium") else None
        if left_out is None or not left_out.true_count:
            return values
        written = pc.and_(left_out, pc.is_in(operation, value_set=pa.array(_ROW_OPS)))
        if self._rules.unavailable != "null":
            # Not in inserts: a primary-key change comes as an insert, and the value belongs to the old key, whose
            # delete may be in another batch, or already merged.
            stays = column.name in self._rules.may_be_unchanged
            may = pa.scalar(stays) if self._rules.moved else pc.and_(pc.equal(operation, "u"), stays)
            found.leave_unchanged_where(pc.and_(written, may), column.name)
            error = DecodeError(MOVED if stays else "missing", self._rules.refusal(column.name))
            found.refuse_where(pc.and_not(written, may), error)
        return pc.if_else(left_out, pa.scalar(None, column.type), values)


def _rebuilt(kind: pa.StructType, rules: EnvelopeRules, inner: Decoder, watch: Watch | None) -> Enveloped:
    made = Enveloped.__new__(Enveloped)
    made._setup(kind, rules, inner, watch)
    return made


def _of_row(kind: str, watch: Watch | None) -> Watch | None:
    """The watch for the envelope's decoder, which reports only fields of the row."""
    if watch is None or kind == "mongo":
        return None
    if _has_images(kind):
        image = _images(kind)[1]
        return replace(watch, within=(image,), widens=frozenset((image, *path) for path in watch.widens))
    return replace(watch, passing="__")


def _has_images(kind: str) -> bool:
    """Whether the envelope has the row as a struct in one of its fields."""
    return kind in ("debezium", "dms")


def _tombstones(decoded: Decoded) -> list[int]:
    """Indexes of records without a value: null, or, in Connect's JSON, a null payload."""
    empty = pc.indices_nonzero(pc.is_null(decoded.values)).to_pylist()
    return [row for row in empty if row not in decoded.errors]


def _images(kind: str) -> tuple[str, str]:
    return ("before", "data") if kind == "dms" else ("before", "after")


def _operation(kind: str, envelope: pa.Array) -> pa.Array:
    if kind in ("debezium", "mongo"):
        return pc.struct_field(envelope, "op")
    if kind == "debezium_flat":
        deleted = pc.equal(pc.struct_field(envelope, "__deleted"), "true")
        said = pc.coalesce(pc.struct_field(envelope, "__op"), pa.scalar("u"))
        found = pc.if_else(pc.fill_null(deleted, False), pa.scalar("d"), said)
        return pc.if_else(pc.is_valid(envelope), found, pa.scalar(None, pa.string()))
    metadata = pc.struct_field(envelope, "metadata")
    name = pc.struct_field(metadata, "operation")
    operations = pa.nulls(len(envelope), pa.string())
    for word, operation in _DMS.items():
        operations = pc.if_else(pc.fill_null(pc.equal(name, word), False), pa.scalar(operation), operations)
    # DMS's records about tables (create-table, add-column, …) are not changes of rows.
    control = pc.and_(pc.equal(pc.struct_field(metadata, "record-type"), "control"), pc.is_null(operations))
    return pc.if_else(pc.fill_null(control, False), pa.scalar(_MESSAGE), operations)


Tree = dict[str, Any]
"""Names to fields, or to trees of them."""

_TEXT, _ANY_TEXT = pa.field("", pa.string()), as_text(pa.field("", pa.string()))


def wire_type(kind: pa.StructType, rules: EnvelopeRules) -> pa.StructType:
    """The type of the part of the envelope that is read; all fields are nullable.

    Raises:
        ConfigurationError: a column of the metadata cannot be read from its path.
    """
    row = {f.name: rules.dialect.marked(f) for f in _row_type(kind, rules)}
    tree: Tree = {}
    match rules.kind:
        case "debezium":
            tree = {"before": dict(row), "after": dict(row), "op": _TEXT}
        case "mongo":
            tree = {"before": _TEXT, "after": _TEXT, "op": _TEXT}
        case "debezium_flat":
            tree = {**row, "__op": _TEXT, "__deleted": _ANY_TEXT}
        case "dms":
            tree = {"data": dict(row), "before": dict(row), "metadata": {"operation": _TEXT, "record-type": _TEXT}}
    for name, path in rules.metadata.items():
        if path != OPERATION:
            _Metadata(name, path, rules).plant(tree, tuple(path.split(".")), kind.field(name))
    return _struct(tree)


def _row_type(kind: pa.StructType, rules: EnvelopeRules) -> pa.StructType:
    return pa.struct([f.with_nullable(True) for f in kind if f.name not in rules.metadata])


class _Metadata:
    """Adds the fields of the envelope that metadata columns need to those that are read anyway."""

    def __init__(self, name: str, path: str, rules: EnvelopeRules) -> None:
        self._name, self._path, self._dialect = name, path, rules.dialect
        self._rows = [()] if rules.kind == "debezium_flat" else [(image,) for image in _images(rules.kind)]

    def plant(self, tree: Tree, path: tuple[str, ...], wanted: pa.Field, at: tuple[str, ...] = ()) -> None:
        name, rest = path[0], path[1:]
        known = tree.get(name)
        if known is None and not rest:
            of_row = at in self._rows and not name.startswith("__")
            tree[name] = self._dialect.marked(wanted) if of_row else wanted
        elif rest or pa.types.is_struct(wanted.type):
            inner = tree[name] = self._opened(known, name)
            for steps, one in [(rest, wanted)] if rest else [((f.name,), f) for f in wanted.type]:
                self.plant(inner, steps, one, (*at, name))
        elif isinstance(known, dict):
            raise self._wrong(f"{name} there is an object", "name one of its fields, or declare a struct")
        elif known and not (known.type == wanted.type or is_wider(known.type, wanted.type)):
            raise self._wrong(f"it is {field_text(known)} there, not {field_text(wanted)}", "declare both alike")

    def _opened(self, known: Tree | pa.Field | None, name: str) -> Tree:
        if known is None or isinstance(known, dict):
            return known or {}
        if not pa.types.is_struct(known.type):
            raise self._wrong(f"{name} is {field_text(known)} there", "declare it as a struct, or name another path")
        return {f.name: f for f in known.type}

    def _wrong(self, what: str, remedy: str) -> ConfigurationError:
        text = f"the column {self._name} cannot be read from {self._path}: {what}"
        return ConfigurationError(text, where="source.value.envelope.metadata", remedy=remedy, column=self._name)


def _struct(tree: Tree) -> pa.StructType:
    """The struct of a tree of types; all fields are nullable."""
    parts = ((name, _struct(found) if isinstance(found, dict) else found) for name, found in tree.items())
    return pa.struct(
        [f.with_name(name).with_nullable(True) if isinstance(f, pa.Field) else pa.field(name, f) for name, f in parts]
    )
