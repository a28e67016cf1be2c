"""What the envelopes of change data look like: where operation and images of the row are, and which part is read.

Pure. Sources: as in `jobs.decode.envelope`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.json_dialect import JsonDialect
from jobs.decode.unavailable import Placeholder
from jobs.schema.types import as_text, field_text, is_wider
from resources.errors import ConfigurationError

OPERATION = "op"
ROW_OPS, DELETE, TRUNCATE, MESSAGE = ("c", "r", "u"), "d", "t", "m"
_DMS = {"load": "r", "insert": "c", "update": "u", "delete": "d", "truncate-table": "t"}


@dataclass(frozen=True)
class EnvelopeRules:
    """The options of an envelope in a pipeline file (`jobs.spec.envelope`).

    Attributes:
        unavailable: what to do with a record whose value is Debezium's placeholder: `refuse` or `null`.
        may_be_unchanged: columns that an update with the placeholder leaves unchanged instead.
        moved: an insert leaves them unchanged too, because their values are known from the old key
            (`jobs.dead_letters`).
        key: the key's columns, if any table has a row a key.
        of_deletes: columns of a deleted row that the pipeline looks at; None: it may look at any.
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
    key: frozenset[str] = frozenset()
    of_deletes: frozenset[str] | None = None
    dialect: JsonDialect = field(default_factory=JsonDialect)

    def renamed(self, fields: Mapping[str, str]) -> EnvelopeRules:
        """The rules by the names that columns have in records."""

        def renamed(names: frozenset[str]) -> frozenset[str]:
            return frozenset(fields.get(name, name) for name in names)

        return replace(
            self,
            may_be_unchanged=renamed(self.may_be_unchanged),
            key=renamed(self.key),
            of_deletes=None if self.of_deletes is None else renamed(self.of_deletes),
        )

    def refusal(self, column: str) -> str:
        """Why an omitted value makes a bad record: in a new row also if the column `may_be_unchanged`."""
        what = f"column {column}: the change does not bring its value"
        if column in self.may_be_unchanged:
            keyed = "the primary key was changed, and the landed changes of the old key do not say it"
            remedy = "let Debezium send the row again (incremental snapshot); REPLICA IDENTITY FULL sends all values"
            return f"{what}: {keyed}; {remedy}"
        return f"{what}, and a key column or one that is `not null` keeps none" if self.may_be_unchanged else what


def has_images(kind: str) -> bool:
    """Whether the envelope has the row as a struct in one of its fields."""
    return kind in ("debezium", "dms")


def images(kind: str) -> tuple[str, str]:
    return ("before", "data") if kind == "dms" else ("before", "after")


def operation_of(kind: str, envelope: pa.Array) -> pa.Array:
    if kind in ("debezium", "mongo"):
        return pc.struct_field(envelope, "op")
    if kind == "debezium_flat":
        deleted = pc.equal(pc.struct_field(envelope, "__deleted"), "true")
        said = pc.coalesce(pc.struct_field(envelope, "__op"), pa.scalar("u"))
        found = pc.if_else(pc.fill_null(deleted, False), pa.scalar("d"), said)
        return pc.if_else(pc.is_valid(envelope), found, pa.scalar(None, pa.string()))
    metadata = pc.struct_field(envelope, "metadata")
    name = pc.struct_field(metadata, "operation")
    operations = pa.array(_DMS.values()).take(pc.index_in(name, value_set=pa.array(_DMS)))
    # DMS's records about tables (create-table, add-column, …) are not changes of rows.
    control = pc.and_(pc.equal(pc.struct_field(metadata, "record-type"), "control"), pc.is_null(operations))
    return pc.if_else(pc.fill_null(control, False), pa.scalar(MESSAGE), operations)


Tree = dict[str, Any]
"""Names to fields, or to trees of them."""

_TEXT, _ANY_TEXT = pa.field("", pa.string()), as_text(pa.field("", pa.string()))


# The row where it is no image in a field of the envelope.
FLAT = ""


def without_old_values(rules: EnvelopeRules) -> list[tuple[frozenset[str], list[str]]]:
    """Images of the row that may be read in part, and the operations of which nothing else is needed."""
    deletes = [] if rules.of_deletes is None else [DELETE]
    before = (frozenset({"before"}), [*ROW_OPS, TRUNCATE, MESSAGE, *deletes])
    match rules.kind:
        case "debezium":
            return [before]
        case "dms":
            return [before, (frozenset({"before", "data"}), deletes)]
        case "debezium_flat":
            return [(frozenset({FLAT}), deletes)]
    return []


def wire_type(kind: pa.StructType, rules: EnvelopeRules, in_part: Collection[str] = ()) -> pa.StructType:
    """The type of the part of the envelope that is read; all fields are nullable.

    Args:
        in_part: the images of the row of which only the columns are read that are needed of old values.

    Raises:
        ConfigurationError: a column of the metadata cannot be read from its path.
    """
    row = {f.name: rules.dialect.marked(f) for f in row_type(kind, rules)}

    def image(name: str) -> Tree:
        needed = _needed(rules, name) if name in in_part else None
        columns = {column: f for column, f in row.items() if needed is None or column in needed}
        return columns if name == FLAT else {} if name in in_part and not columns else {name: columns}

    tree: Tree = {}
    match rules.kind:
        case "debezium":
            tree = {**image("before"), **image("after"), "op": _TEXT}
        case "mongo":
            tree = {"before": _TEXT, "after": _TEXT, "op": _TEXT}
        case "debezium_flat":
            tree = {**image(FLAT), "__op": _TEXT, "__deleted": _ANY_TEXT}
        case "dms":
            tree = {**image("before"), **image("data"), "metadata": {"operation": _TEXT, "record-type": _TEXT}}
    for name, path in rules.metadata.items():
        if path != OPERATION:
            _Metadata(name, path, rules).plant(tree, tuple(path.split(".")), kind.field(name))
    return _struct(tree)


def _needed(rules: EnvelopeRules, image: str) -> frozenset[str] | None:
    """Columns that are needed of old values; None: all. Those that metadata names have one type in any reading."""
    paths = [path.split(".") for path in rules.metadata.values()]
    if [image] in paths:
        return None
    keys = rules.key if rules.of_deletes is None else rules.of_deletes
    return keys | {path[0] if image == FLAT else path[1] for path in paths if image in (FLAT, path[0])}


def row_type(kind: pa.StructType, rules: EnvelopeRules) -> pa.StructType:
    return pa.struct([f.with_nullable(True) for f in kind if f.name not in rules.metadata])


class _Metadata:
    """Adds the fields of the envelope that metadata columns need to those that are read anyway."""

    def __init__(self, name: str, path: str, rules: EnvelopeRules) -> None:
        self._name, self._path, self._dialect = name, path, rules.dialect
        self._rows = [()] if rules.kind == "debezium_flat" else [(image,) for image in images(rules.kind)]

    def plant(self, tree: Tree, path: tuple[str, ...], wanted: pa.Field, at: tuple[str, ...] = ()) -> None:
        name, rest = path[0], path[1:]
        known = tree.get(name)
        if known is None and not rest:
            depth = len(self._rows[0])
            column = (*at, name)[depth : depth + 1]
            of_row = at[:depth] in self._rows and not column[0].startswith("__")
            tree[name] = self._dialect.marked(wanted.with_name(column[0])) if of_row else wanted
        elif rest or pa.types.is_struct(wanted.type):
            inner = tree[name] = self._opened(known, name)
            for steps, one in [(rest, wanted)] if rest else [((f.name,), f) for f in wanted.type]:
                self.plant(inner, steps, one, (*at, name))
        elif isinstance(known, dict):
            raise self._wrong(f"{name} there is an object", "name one of its fields, or declare a struct")
        elif known and not (known.type == wanted.type or is_wider(known.type, wanted.type)):
            raise self._wrong(
                f"it is {field_text(known)} there, not {field_text(wanted)}", "declare both with the same type"
            )

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
