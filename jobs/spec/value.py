"""How the bytes of a record's value become columns: `source.value` in a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from jobs.decode.json_dialect import JsonDialect
from jobs.schema.found_fields import Excluded, field_paths, shown
from jobs.schema.found_fields import Path as FieldPath
from jobs.schema.renaming import Renaming
from jobs.schema.types import parse_columns
from jobs.spec.base import TypeText
from jobs.spec.encoding import BY_COLUMN, ONE_COLUMN, Units, unit_mistakes
from jobs.spec.envelope import AUTO
from jobs.spec.formats import Format
from resources.config_files.mistakes import Mistake


class Value(Format):
    """How the bytes of a record's value become columns, and what happens to fields without a column."""

    unknown_fields: Literal["add", "rescue", "ignore", "fail"] | None = Field(
        None,
        description="fields of records without a column, nested ones too. add: they become columns of all tables; "
        "rescue: they are kept as JSON in the column `rescued`; ignore: they are left out, counted, "
        "and named in log and metadata; fail: the record is bad. Left out: add if `columns` are left "
        "out, else as ignore, and the check `fields_declared` warns",
    )
    columns: dict[str, TypeText] = Field(
        default_factory=dict,
        description="column name to type, for example `{id: long not null, tags: array<string>}`. `unknown_fields` "
        "decides about other fields. Left out, or `auto`: the columns of the `schema_file`, else all "
        "fields of the records (`unknown_fields: add`)",
    )
    rescued: str = Field("_rescued", min_length=1, description="the column of `unknown_fields: rescue`, a string")
    exclude: list[str] = Field(
        default_factory=list,
        description="fields of records, by path (`customer.email`, `lines.element.note`), that no table gets, and "
        "that are neither counted nor rescued. A path also stands for a field with such a name "
        "(`customer.email: …`). The bytes of dead letters still have these fields",
    )
    convert: Literal["exact", "best_fit"] = Field(
        "exact",
        description="values of another type than the column's, in keys too. exact: the record is bad; best_fit: "
        'the value is converted if nothing is rounded or cut: `"7"` to a number, `"true"` and `1` to a '
        "boolean, numbers and objects to text, a date to a timestamp",
    )
    time_unit: Units | None = Field(
        None,
        description=f"JSON without schema: the unit of timestamps that are numbers, {BY_COLUMN}; left out: ms, or what "
        "`envelope.timestamps` says",
    )
    _brought: frozenset[FieldPath] = PrivateAttr(frozenset())

    @property
    def brought(self) -> frozenset[FieldPath]:
        """Paths of columns, and nested parts, that records have brought: their types follow the records."""
        return self._brought

    @property
    def dialect(self) -> JsonDialect:
        """How keys and values are written where their format does not say it."""
        written = self.envelope.rules.dialect if self.envelope else JsonDialect(self.time_unit or "ms")
        units, fields = written.timestamps, Renaming(self.rename).outer_fields
        if not isinstance(units, str):
            units = {fields.get(name, name): unit for name, unit in units.items()}
        return replace(written, timestamps=units, best_fit=self.convert == "best_fit")

    def dialect_mistakes(self, of_json: bool, key: Mapping[str, str]) -> Iterator[Mistake]:
        """Mistakes: options about JSON if none is read, units of columns that there are not.

        Args:
            of_json: some of the pipeline's keys or values are JSON.
            key: columns of the key, which is written as the value is.
        """
        if not self.takes_new_columns:
            units = self.envelope.timestamps if self.envelope else self.time_unit
            option = ("envelope", "timestamps") if self.envelope else ("time_unit",)
            of_row = {
                name: kind
                for name, kind in self.columns.items()
                if not (self.envelope and name in self.envelope.metadata)
            }
            yield from (m.below(option) for m in unit_mistakes(units, {**key, **of_row}))
        if self.envelope:
            yield from (m.below(("envelope",)) for m in self.envelope.dialect_mistakes(of_json))
        if self.time_unit and self.envelope:
            what = "times in an envelope have the unit that `envelope.timestamps` says"
            yield Mistake(("time_unit",), what, "write `timestamps` in `envelope`, and leave this out")
        elif self.time_unit and not of_json:
            yield Mistake(("time_unit",), "it applies only to the format json, which no record has", "leave it out")
        if self.convert == "best_fit" and self.envelope and self.envelope.kind == "mongo":
            yield Mistake(("convert",), "MongoDB's documents have their own types", "leave it out")
        if self.convert == "best_fit" and self.format in ONE_COLUMN:
            yield Mistake(("convert",), f"a record of the format {self.format} is one column as it is", "leave it out")

    @property
    def excluded(self) -> Excluded:
        return Excluded(frozenset(self.exclude))

    def _no_columns(self) -> Mistake:
        if self.unknown_fields is None:
            return super()._no_columns()
        what = f"there are no columns, and `unknown_fields: {self.unknown_fields}` lets records bring none"
        return Mistake(
            ("unknown_fields",), what, "write `unknown_fields: add` to leave them to the records, or declare them"
        )

    def with_columns(self, columns: dict[str, str]) -> Value:
        """The value with these columns; new ones count as brought by records."""
        found = self.model_copy(update={"columns": columns})
        before, after = (field_paths(parse_columns(one)) for one in (self.columns, columns))
        found._brought = self._brought | (after - before)
        return found

    @property
    def takes_new_columns(self) -> bool:
        return self.unknown_fields == "add"

    @model_validator(mode="before")
    @classmethod
    def _columns_may_be_left_out(cls, given: Any) -> Any:
        """Adds `unknown_fields: add` if no columns of the row are declared."""
        if not isinstance(given, dict):
            return given
        columns, settled = given.get("columns"), given.get("unknown_fields") or given.get("schema_file")
        if columns != AUTO and (_of_the_row(given) or settled or given.get("format") in ONE_COLUMN):
            return given
        declared = {} if columns == AUTO else columns or {}
        return {**given, "columns": declared, "unknown_fields": given.get("unknown_fields") or "add"}

    @model_validator(mode="before")
    @classmethod
    def _rescued_is_a_column(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("unknown_fields") != "rescue":
            return given
        columns = given.get("columns")
        if not isinstance(columns, dict) or not columns:
            return given
        name = given.get("rescued", cls.model_fields["rescued"].default)
        return {**given, "columns": {**columns, name: columns.get(name, "string")}}

    def own_mistakes(self) -> Iterator[Mistake]:
        if self.unknown_fields and self.format in ONE_COLUMN:
            what = f"records of the format {self.format} have no fields"
            yield Mistake(("unknown_fields",), what, "leave it out")
        if self.unknown_fields == "rescue" and self.columns.get(self.rescued) != "string":
            what = f"{self.rescued} is the column of what is rescued"
            yield Mistake(("columns", self.rescued), what, "declare it as string, or name another `rescued`")
        renaming = Renaming(self.rename)
        declared = {shown(renaming.field(path)) for path in field_paths(self.struct)} if self.exclude else set()
        for number, text in enumerate(self.exclude):
            if text in declared:
                yield Mistake(("exclude", number), f"{text} is declared in `columns`", "leave it out of one of them")


def _of_the_row(given: dict[str, Any]) -> bool:
    """Whether columns other than the envelope's metadata are declared."""
    columns, envelope = given.get("columns") or {}, given.get("envelope")
    metadata = envelope.get("metadata") if isinstance(envelope, dict) else None
    if not isinstance(columns, dict) or not isinstance(metadata, dict):
        return bool(columns)
    return not columns.keys() <= metadata.keys()
