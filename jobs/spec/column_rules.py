"""Rules about the columns that a pipeline file names: key, operation, order, names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.destinations.registry import kind_of
from jobs.schema.found_fields import Path as FieldPath
from jobs.schema.found_fields import field_paths, shown
from jobs.schema.types import inside, parse_columns, type_name
from jobs.spec.columns import key_fields
from jobs.spec.metadata import metadata_of
from resources.config_files.mistakes import Mistake, Path, did_you_mean, one_of

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec

# Columns that merges add to rows; newer ones have a prefix.
PREFIX = "__bm_"
RESERVED = {"__op", "__order", "__batch", "__i", "__kafka", "__rank", "__deleted", "__key_deleted", "__hit",
            "__unchanged", "__brought"}  # fmt: skip
KEY, OP, ORDER = ("changes", "key"), ("changes", "op"), ("changes", "order_by")
_COLUMNS = ("source", "value", "columns")
_IDENTIFYING = "use a whole number, decimal, string, binary, boolean, date or timestamp"


def unknown_column(path: Path, name: str, known: Sequence[str], of: str, at_key: bool = False) -> Mistake:
    """The mistake of naming a column that does not exist."""
    others = f"name one of {', '.join(known)}" if known else "declare it there: what is named needs a type"
    return Mistake(path, f"{name} is not a column of {of}", did_you_mean(name, known, others), at_key)


def key_columns(spec: PipelineSpec) -> Iterator[Mistake]:
    if spec.changes.key is None:
        return
    in_value = spec.changes.key.source == "value"
    if not in_value and spec.source.key is None:
        yield Mistake(
            (*KEY, "columns"),
            "the key columns come from the record's key, but `source.key` is missing",
            "declare `source.key`, or take them from the value: `source: value`",
        )
        return
    key = spec.source.key
    origin = parse_columns(spec.source.row) if in_value or key is None else pa.schema(key.struct)
    structs = all(kind_of(t).capabilities.struct_keys for t in spec.tables if t.needs_key)
    for number, name in enumerate(spec.changes.key.columns):
        path = (*KEY, "columns", number)
        if name not in origin.names:
            yield unknown_column(path, name, origin.names, _value_or_key(spec, in_value))
        elif _cannot_identify(origin.field(name).type, structs):
            yield Mistake(
                path, f"{name} is {type_name(origin.field(name).type)}, which cannot identify a row", _IDENTIFYING
            )


def _value_or_key(spec: PipelineSpec, in_value: bool) -> str:
    if not in_value:
        return "source.key"
    return "the transform's result" if spec.source.transform else "source.value"


def _cannot_identify(kind: pa.DataType, structs: bool) -> bool:
    """Whether the type cannot be part of a key: Iceberg refuses it for identifier fields (floats, nested types).

    `structs` allows structs, which some kinds compare field by field.
    """
    if structs and pa.types.is_struct(kind):
        return any(_cannot_identify(kind.field(n).type, structs) for n in range(kind.num_fields))
    return bool(pa.types.is_floating(kind) or pa.types.is_nested(kind))


def operation(spec: PipelineSpec) -> Iterator[Mistake]:
    op = spec.changes.op
    if op is None:
        return
    value = parse_columns(spec.source.row)
    if op.field not in value.names:
        yield unknown_column((*OP, "field"), op.field, value.names, _value_or_key(spec, True))
    elif pa.types.is_nested(value.field(op.field).type):
        yield Mistake(
            (*OP, "field"), f"{op.field} is {type_name(value.field(op.field).type)}, not a single value",
            "name a column of text",
        )  # fmt: skip


def order_column(spec: PipelineSpec) -> Iterator[Mistake]:
    op, order_by = spec.changes.op, spec.changes.ordered_by
    if not order_by:
        return
    value = parse_columns(spec.source.row)
    if order_by not in value.names:
        yield unknown_column(ORDER, order_by, value.names, _value_or_key(spec, True))
    elif pa.types.is_nested(value.field(order_by).type):
        yield Mistake(
            ORDER, f"{order_by} is {type_name(value.field(order_by).type)}, which has no order",
            "name a number, a text, a date or a timestamp",
        )  # fmt: skip
    elif op and op.field == order_by and not op.keep:
        yield Mistake(ORDER, f"{order_by} is the op field, which the tables do not keep", "set `changes.op.keep: true`")
    yield from _tombstones_without_order(spec, order_by)


def _tombstones_without_order(spec: PipelineSpec, order_by: str) -> Iterator[Mistake]:
    """Tombstones that are the source's deletes; beside an operation of the records' they only follow these."""
    deletes, envelope = [t.table for t in spec.tables if t.shows_deletes], spec.source.value.envelope
    if not deletes or spec.changes.tombstones == "skip":
        return
    what = f"a tombstone has no {order_by}, so it does not show when the row of {one_of(deletes, 'and')} was deleted"
    if not spec.changes.op:
        yield Mistake(ORDER, what, "name the column with the record's operation, in `changes.op`")
    elif envelope and envelope.kind == "debezium_flat" and not envelope.rules.skips_tombstones:
        yield Mistake(
            ORDER, what, "let ExtractNewRecordState write deleted rows (`delete.tombstone.handling.mode: rewrite`) and "
            "set `tombstones: skip` in the envelope, or leave `order_by` out",
        )  # fmt: skip


def column_names(spec: PipelineSpec) -> Iterator[Mistake]:
    """Names that would collide."""
    row, op = parse_columns(spec.source.row), spec.changes.op
    landed = [*row, *(field for field in key_fields(spec) if field.name not in row.names)]
    lower = [c.name.lower() for c in landed if not (op and op.field == c.name and not op.keep)]
    where = ("source", "transform") if spec.source.transform else _COLUMNS
    for what in one_name(pa.struct(landed)):
        remedy = f"give one of them another name in {'the transform' if spec.source.transform else '`rename`'}"
        yield Mistake(where, what, remedy)
    if "" in lower:
        yield Mistake(where, "a field without a name can be no column", "give it a name in `rename`, or exclude it")
    for name in sorted(name for name in lower if name in RESERVED or name.startswith(PREFIX)):
        yield Mistake(where, f"{name} is a name that the merge uses itself", "rename the column in a transform")
    for number, table in enumerate(spec.tables):
        kind, metadata = kind_of(table), metadata_of(table.metadata_columns)
        if not kind.capabilities.nullable_nested and any(pa.types.is_nested(m.type) for m in metadata):
            what = f"record is a struct, and {kind.title} has no null for one"
            yield Mistake(("tables", number, "metadata_columns"), what, "name topic, partition and offset")
        ours = [m.column for m in metadata]
        for name in ours:
            if name.lower() in lower or ours.count(name) > 1:
                of = "the value" if name.lower() in lower else "the record's metadata"
                yield Mistake(
                    ("tables", number, "metadata_columns"),
                    f"{name} is a column of {of} already",
                    "give that one another name, or leave this one out",
                )


@dataclass(frozen=True)
class _Named:
    """A field by one of the two names that Iceberg has for it.

    Attributes:
        name: its path, or that without `element` and `value` before the fields of structs.
        is_made_alone: it can be added to a table that there is; false for an array's `element`, a map's `key` and
            `value`, which are made together with their columns.
    """

    name: FieldPath
    path: FieldPath
    is_made_alone: bool

    def shares(self, other: _Named) -> bool:
        """Whether one name for both is an error: of Spark, which ignores case, or of Iceberg."""
        if self.path == other.path:
            return False
        if shown(self.name) != shown(other.name) or (self.is_whole and other.is_whole):
            return True
        # A short name that is a path too means that path, so it is an error only to add the field of the path later.
        whole, short = (self, other) if self.is_whole else (other, self)
        return whole.is_whole and whole.is_made_alone and whole.path != short.path[: len(whole.path)]

    @property
    def is_whole(self) -> bool:
        return self.name == self.path


def one_name(columns: pa.StructType) -> Iterator[str]:
    """Which fields, also nested ones, have one name: to Spark, which reads landed rows for every kind (replays,
    `verify`) and ignores case, or to Iceberg, where they are landed and which names a nested field by its path."""
    named: dict[str, list[_Named]] = {}
    for one in dict.fromkeys(_iceberg_names(columns)):
        named.setdefault(shown(one.name).lower(), []).append(one)
    shared = [{one.path: None for one in group if any(map(one.shares, group))} for group in named.values()]
    alike = {path for paths in shared for path in paths}
    for paths in filter(None, shared):
        around = {path[:n] for path in paths for n in range(1, len(path))}
        if (around - {*paths}) & alike:
            continue
        names = list(dict.fromkeys(map(shown, paths)))
        if len(names) > 1 and len({name.lower() for name in names}) == 1:
            yield f"{one_of(names, 'and')} differ in upper and lower case only, and to Spark they are one name"
        else:
            own = min(names, key=len)
            yield f"{own} is the name of a field and the path of another, and to Iceberg they are one name"


def _iceberg_names(kind: pa.DataType, path: FieldPath = (), short: FieldPath = ()) -> Iterator[_Named]:
    """The names of all fields."""
    in_struct = pa.types.is_struct(kind)
    for field in inside(kind):
        here, name = (*path, field.name), (*short, field.name)
        yield from (_Named(one, here, in_struct) for one in (here, name))
        if pa.types.is_map(field.type):
            yield from (_Named((*one, "key"), (*here, "key"), False) for one in (here, name))
        is_left_out = pa.types.is_struct(field.type) and not in_struct
        yield from _iceberg_names(field.type, here, short if is_left_out else name)


def added_columns(spec: PipelineSpec) -> Iterator[Mistake]:
    if spec.source.transform and spec.source.key_is_open:
        yield Mistake(("source", "key"), "a transform needs to know the key's columns", "declare `columns`")
    if spec.source.value.unknown_fields != "add":
        return
    path = ("source", "value", "unknown_fields")
    resolved = spec.source.resolved
    if resolved and not resolved.passes:
        what = "the transform has no `*` through which columns that records bring could pass"
        yield Mistake(
            path, what, "begin it with `select *`; or declare `columns`, and use `rescue`, `ignore` or `fail`"
        )
    for number, table in enumerate(spec.tables):
        if not table.evolve.add_columns:
            what = "`source.value.unknown_fields: add` adds columns, and this table takes none"
            yield Mistake(("tables", number, "evolve", "add_columns"), what, "set it to true, or use `rescue`")


def letter_case(spec: PipelineSpec) -> Iterator[Mistake]:
    """Which pipelines can have `ignore_case`, and which names it would make equal."""
    if not spec.ignore_case:
        return
    with_schema = [
        e for _, e in spec.source.encodings if e.format in ("avro", "protobuf", "connect_json") or e.registry
    ]
    for name in sorted({encoding.format for encoding in with_schema}):
        what = f"it works with plain JSON, not with {name}, whose schemas name the fields"
        yield Mistake(("ignore_case",), what, "leave it out")
    # Of the value's columns, and those of the tables' key, a rule of all pipelines says it.
    paths = sorted(field_paths(spec.source.key.struct if spec.source.key else ()))
    names = Counter((path[:-1], path[-1].lower()) for path in paths if path[1:])
    for path in paths:
        if names[path[:-1], path[-1].lower()] > 1:
            what = f"{shown(path)} differs from another field by upper and lower case only"
            yield Mistake(("ignore_case",), what, "leave it out, or declare one of them")
