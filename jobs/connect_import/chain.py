"""Translates a connector's chain of transforms, column by column, to one `select … from records`.

Each step changes the expression of a column. Undeclared columns that a step reads become columns of the records, with a
type that a person has to check.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from jobs.connect_import.known import NOT_NULL
from jobs.decode.envelope_shape import OPERATION
from jobs.spec.column_rules import RESERVED
from jobs.spec.envelope import OP_COLUMN
from sql import quote


def name(column: str | tuple[str, ...]) -> str:
    return quote("spark", column)


@dataclass
class Chain:
    """The transforms so far.

    Attributes:
        columns: the declared columns of the records, with their types.
        has_schema: the records have one.
        made: from column of the result to its expression.
        types: of results whose type does not follow from the statement.
        required: results that are a column as it is, and that rows need, but deletes do not; with their types.
        conditions: that the kept records fulfil.
        left_out: fields of the records that must not become columns.
        closed: only fields in `made` are kept.
        reshaped: a transform makes other records, in which fields that it does not know have no place.
        open: undeclared fields pass, too.
        guessed: undeclared columns, with a guessed type.
        envelope: kind of change data.
        metadata: columns that are parts of the envelope, with their paths.
        metadata_now: expressions of `_topic` and `_headers` after transforms have changed them.
        metadata_lost: the transform that has changed them in a way that cannot be translated.
        key: columns of the value that are the record's key.
        key_names: from fields of the record's key to the names that transforms have given them.
        key_field: the field that is the whole key.
        key_todo: what a person has to check if the record's key is read.
        record_key: columns of the record's key that the result reads.
        value_format: of records that a transform parses.
        todo: what a person has to check.
    """

    columns: dict[str, str]
    has_schema: bool = False
    made: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    required: dict[str, str] = field(default_factory=dict)
    conditions: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    closed: bool = False
    reshaped: bool = False
    open: bool = False
    guessed: dict[str, str] = field(default_factory=dict)
    envelope: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    metadata_now: dict[str, str] = field(default_factory=dict)
    metadata_lost: dict[str, str] = field(default_factory=dict)
    key: list[str] | None = None
    key_names: dict[str, str] = field(default_factory=dict)
    key_field: str | None = None
    key_todo: list[str] = field(default_factory=list)
    record_key: dict[str, str] | None = None
    value_format: str | None = None
    todo: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.made = {column: name(column) for column in self.columns}

    def read(self, column: str, kind: str = "string") -> str:
        """The expression of a column; an unknown one becomes a column of the records."""
        if column in self.made:
            return self.made[column]
        if self.closed or column in self.left_out:
            self.todo.append(
                f"{column}: one transform leaves it out, and a later one reads it; null stands in its place"
            )
            return f"cast(null as {kind})"
        if column not in self.columns:
            self.guessed[column] = kind
        return self._declare(column, kind)

    def _declare(self, column: str, kind: str) -> str:
        self.columns.setdefault(column, kind)
        return self.made.setdefault(column, name(column))

    def type_of(self, column: str) -> str:
        """The column's type if it is known, else empty."""
        if column in self.types:
            return self.types[column]
        known = self.columns.get(column, "") if self.made.get(column) == name(column) else ""
        return known.removesuffix(NOT_NULL)

    def make(self, column: str, expression: str, kind: str | None = None) -> None:
        self.made[column] = expression
        self.types.pop(column, None)
        if kind:
            self.types[column] = kind

    def require_in_rows(self, key: Collection[str]) -> None:
        """Lets columns of the records that take no null be null in deletes, but for the key: the transform's result
        takes none instead, from which deletes are exempt."""
        for column, kind in self.columns.items():
            results = [c for c, made in self.made.items() if made == name(column)]
            if kind.endswith(NOT_NULL) and not set(results) & set(key):
                self.columns[column] = kind.removesuffix(NOT_NULL)
                self.required |= dict.fromkeys(results, kind)

    def drop(self, column: str) -> None:
        self.made.pop(column, None)
        self.types.pop(column, None)

    def leave_out(self, column: str) -> None:
        """Removes the column, whether it is declared or not."""
        fields = [c for c in self.columns if self.made.get(column) == name(c)]
        self.left_out += [c for c in dict.fromkeys([column, *fields]) if c not in self.left_out]
        self.drop(column)

    def seen(self, metadata: str) -> str:
        """The expression of `_topic` or `_headers` for the next transform."""
        if kind := self.metadata_lost.get(metadata):
            self.todo.append(f"{metadata}: {kind} had changed it before another transform read it; the record's own "
                             "stands in its place")  # fmt: skip
        return self.metadata_now.get(metadata, metadata)

    def only_when(self, condition: str, before: Chain) -> None:
        """Restricts the changes since `before` to records that fulfil the condition."""
        for now, was in ((self.made, before.made), (self.metadata_now, before.metadata_now)):
            for column in [*was, *(c for c in now if c not in was)]:
                old, new = was.get(column), now.get(column)
                if old != new:
                    other = column if now is self.metadata_now else "null"
                    now[column] = f"case when {condition} then {new or other} else {old or other} end"
        kept = len(before.conditions)
        self.conditions[kept:] = [f"(not {condition} or {one})" for one in self.conditions[kept:]]
        self.left_out, self.closed = before.left_out, before.closed

    def unwrap(self, kind: str, metadata: dict[str, str], types: dict[str, str]) -> None:
        """Extracts the row from change data, with these parts of the envelope as further columns."""
        for column in sorted(RESERVED.intersection(metadata)):
            self.drop(column)
            self.columns.pop(column, None)
            self.todo.append(
                f"{column}: a name that the merge uses itself, so tables get no such column any more; name "
                f"{metadata[column]} otherwise in source.value.envelope.metadata to have it"
            )
        self.metadata = {column: path for column, path in metadata.items() if column not in RESERVED}
        if OPERATION not in self.metadata.values():
            self.metadata[OP_COLUMN] = OPERATION
        self.envelope = self.envelope or kind  # one transform may only prepare records for a later one
        for column in self.metadata:
            self._declare(column, types.get(column, "string"))

    def keep_operation(self) -> None:
        """Keeps the operation as a column whatever happens to the row, since only it tells what a change does."""
        for column, path in self.metadata.items():
            if path == OPERATION:
                self.made.setdefault(column, name(column))

    @property
    def read_columns(self) -> dict[str, str]:
        """The columns of the records that the result reads."""
        texts = "\n".join([*self.made.values(), *self.conditions])
        return {c: kind for c, kind in self.columns.items() if name(c) in texts}

    @property
    def read_metadata(self) -> dict[str, str]:
        """The parts of the envelope, without those that nothing reads."""
        unread = self.columns.keys() - self.read_columns
        return {c: path for c, path in self.metadata.items() if c not in unread}

    @property
    def exclude(self) -> list[str]:
        """`source.value.exclude`; the statement itself leaves out declared columns."""
        read = self.read_columns
        return [c for c in self.left_out if c not in read]

    @property
    def guesses(self) -> list[str]:
        """What a person has to check about guessed columns."""
        read = self.read_columns
        return [f"source.value.columns.{c}: {kind} stands in its place: declare the type that it has"
                for c, kind in self.guessed.items() if c in read]  # fmt: skip

    @property
    def statement(self) -> str | dict[str, object] | None:
        """`source.transform`; None if records are not changed."""
        read = self.read_columns
        kept = [c for c in read if self.made.get(c) == name(c)]
        left_out = [name(c) for c in read if c not in kept]
        new = [f"{text} as {name(c)}" for c, text in self.made.items() if c not in kept]
        if not left_out and not new and not self.conditions:
            return None
        star = [f"* except ({', '.join(left_out)})" if left_out else "*"] if kept or self.open else []
        where = f" where {' and '.join(self.conditions)}" if self.conditions else ""
        sql = f"select {', '.join([*star, *new])} from records{where}"
        types = {c: kind for c, kind in self.types.items() if c not in kept}
        types = {c: kind for c, kind in self.required.items() if c in self.made} | types
        return {"sql": sql, "columns": types} if types else sql
