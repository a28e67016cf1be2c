"""How the bytes of a record's key or value become columns: part of `source` in a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field, PrivateAttr, model_validator

from jobs.decode.envelope_shape import wire_type
from jobs.decode.json_dialect import JsonDialect
from jobs.schema.avro import avro_wire
from jobs.schema.found_fields import Excluded, field_paths, shown
from jobs.schema.found_fields import Path as FieldPath
from jobs.schema.protobuf import Messages, message_wire
from jobs.schema.renaming import Renaming
from jobs.schema.types import field_text, parse_columns, parse_type
from jobs.schema.wire import natural_fields
from jobs.spec.encoding import ONE_COLUMN, Encoding, read_schema
from jobs.spec.envelope import AUTO, Envelope, HasEnvelope, opened
from jobs.spec.units import BY_COLUMN, Units, unit_mistakes
from resources.config_files.mistakes import Mistake, Mistakes, did_you_mean, refuse
from resources.errors import ConfigurationError


class Format(Encoding, HasEnvelope):
    """How the bytes of a record's key or value become columns."""

    rename: dict[str, str] = Field(
        default_factory=dict,
        description="field of records to the name of its column, for example `{custID: customer_id}`; a nested one by "
        "its path (`address.zip: postal_code`, `lines.element.nr: number`)",
    )

    columns: dict[str, str] = Field(
        default_factory=dict,
        description="column name to type, for example `{id: long not null, tags: array<string>}`; with `schema_file` "
        "it may be left out (all its fields) or name some of them",
    )

    @model_validator(mode="before")
    @classmethod
    def _columns_of_the_schema(cls, given: Any) -> Any:
        """Uses the schema file's columns if none are declared."""
        if not isinstance(given, dict) or given.get("columns") or not given.get("schema_file") or given.get("envelope"):
            return given
        try:
            return {**given, "columns": columns_of(given)}
        except ConfigurationError as problem:
            raise Mistakes([Mistake(("schema_file",), problem.what, problem.remedy)]) from None

    @model_validator(mode="after")
    def _columns_fit_the_format(self) -> Format:
        found = type_mistakes(self.columns)
        if not self.columns and not self.takes_new_columns:
            found.append(self._no_columns())
        elif self.format in ONE_COLUMN and len(self.columns) != 1:
            what = f"the format {self.format} gives one column, and {len(self.columns)} are declared"
            found.append(Mistake(("columns",), what, "declare one"))
        if self.format in ONE_COLUMN and self.envelope:
            found.append(Mistake(("envelope",), f"the format {self.format} has no envelope", "leave it out"))
        if self.envelope and not found:
            found += self._metadata_mistakes(self.envelope)
        refuse([*found, *self._rename_mistakes()])
        return self

    def _metadata_mistakes(self, envelope: Envelope) -> Iterator[Mistake]:
        try:
            wire_type(Renaming(self.rename).in_records(self.struct), envelope.rules)
        except ConfigurationError as problem:
            yield Mistake(("envelope", "metadata", str(problem.facts["column"])), problem.what, problem.remedy)

    def _no_columns(self) -> Mistake:
        remedy = "declare them (`batchmerge infer` proposes them), or name a `schema_file`"
        return Mistake(("columns",), "there are no columns", remedy, goes_by=(("schema_file",),))

    @property
    def excluded(self) -> Excluded:
        """Fields that must not become columns."""
        return Excluded()

    def _rename_mistakes(self) -> Iterator[Mistake]:
        declared = None if self.takes_new_columns else list(self.columns)
        seen: dict[str, str] = {}
        for path, name in self.rename.items():
            at, parent = ("rename", path), path.rpartition(".")[0]
            column = f"{parent}.{name}" if parent else name
            if self.format in ONE_COLUMN:
                yield Mistake(at, f"records of the format {self.format} have no fields", "leave it out")
            elif column in seen:
                yield Mistake(at, f"{seen[column]} is called {name} already", "name another column")
            elif not parent and declared is not None and name not in declared:
                yield Mistake(at, f"{name} is not declared in `columns`", did_you_mean(name, declared))
            elif not parent and path in self.columns and path not in self.rename.values():
                yield Mistake(at, f"{path} is declared in `columns` too", f"declare {name} alone")
            seen[column] = path

    @property
    def struct(self) -> pa.StructType:
        return pa.struct(list(parse_columns(self.columns)))


class RecordKey(Format):
    """How the bytes of a record's key become columns."""

    columns: dict[str, str] = Field(
        default_factory=dict,
        description="column name to type. Left out, or `auto`: all fields that the records' keys have when the first "
        "batch is landed; where `changes.key` is left out too, they are the key of the tables",
    )
    column: str | None = Field(
        None,
        description="name of one column that has the whole key, as a struct of `columns`, as BigQuery sinks write it; "
        "left out: each is a column of its own",
    )
    unknown_fields: Literal["ignore", "fail"] | None = Field(
        None,
        description="fields of keys that no column takes: ignore, or fail (the record is bad). Left out: fail where "
        "`columns` are left out, since the key is another one then; else ignore",
    )

    @property
    def takes_new_columns(self) -> bool:
        return not self.columns and self.envelope is None and self.format not in ONE_COLUMN

    @model_validator(mode="before")
    @classmethod
    def _columns_may_be_left_out(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("schema_file") or given.get("columns", AUTO) not in (AUTO, {}):
            return given
        return {**given, "columns": {}, "unknown_fields": given.get("unknown_fields") or "fail"}

    @model_validator(mode="after")
    def _can_be_one_column(self) -> RecordKey:
        if self.column and (self.format in ONE_COLUMN or self.envelope or self.rename):
            what = "it is for keys with fields, without an envelope and without `rename`"
            raise Mistakes([Mistake(("column",), what, "leave it out")])
        return self

    @property
    def struct(self) -> pa.StructType:
        return pa.struct(self.as_columns(list(parse_columns(self.columns))))

    def as_columns(self, fields: Sequence[pa.Field]) -> list[pa.Field]:
        """The columns of these fields: one for each, or one for all."""
        return [pa.field(self.column, pa.struct(list(fields)))] if self.column and fields else list(fields)


class Value(Format):
    """How the bytes of a record's value become columns, and what happens to fields without a column."""

    unknown_fields: Literal["add", "rescue", "ignore", "fail"] | None = Field(
        None,
        description="fields of records that no column takes, nested ones too. add: columns of the landed and the "
        "destination tables, made while the batch is landed; rescue: as JSON in the column `rescued`; ignore: left "
        "out, counted and named in log and metadata; fail: the record is bad. Left out: add without `columns`, else as "
        "ignore, and the check `fields_declared` warns",
    )
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="column name to type, for example `{id: long not null, tags: array<string>}`; others are for "
        "`unknown_fields`. Left out, or `auto`: those of the `schema_file`, else whatever the records bring "
        "(`unknown_fields: add`)",
    )
    rescued: str = Field("_rescued", min_length=1, description="the column of `unknown_fields: rescue`, a string")
    exclude: list[str] = Field(
        default_factory=list,
        description="fields of records, by path (`customer.email`, `lines.element.note`), that no table gets, and that "
        "are neither counted nor rescued, nor is one with such a name (`customer.email: …`). The bytes of dead letters "
        "still have them",
    )
    convert: Literal["exact", "best_fit"] = Field(
        "exact",
        description="values of another type than the column's. exact: the record is bad; best_fit: they are read where "
        'they say the same: `"7"` as a number, `"true"` and `1` as a boolean, numbers and objects as text, a date as a '
        "timestamp; nothing is rounded or cut. Keys are read in the same way",
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
            yield Mistake(("time_unit",), "no record is in the format json, so times say their unit", "leave it out")
        if self.convert == "best_fit" and self.envelope and self.envelope.kind == "mongo":
            yield Mistake(("convert",), "MongoDB's documents say their types themselves", "leave it out")
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
        return opened(given) if isinstance(given, dict) else given

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

    @model_validator(mode="after")
    def _fields_can_be_unknown(self) -> Value:
        found = []
        if self.unknown_fields and self.format in ONE_COLUMN:
            what = f"records of the format {self.format} have no fields"
            found.append(Mistake(("unknown_fields",), what, "leave it out"))
        if self.unknown_fields == "rescue" and self.columns.get(self.rescued) != "string":
            what = f"{self.rescued} is the column of what is rescued"
            found.append(Mistake(("columns", self.rescued), what, "declare it as string, or name another `rescued`"))
        renaming = Renaming(self.rename)
        declared = {shown(renaming.field(path)) for path in field_paths(self.struct)} if self.exclude else set()
        for number, text in enumerate(self.exclude):
            if text in declared:
                found.append(
                    Mistake(("exclude", number), f"{text} is declared in `columns`", "leave it out of one of them")
                )
        refuse(found)
        return self


def type_mistakes(columns: Mapping[str, str]) -> list[Mistake]:
    """Mistakes of columns whose type is invalid."""
    found = []
    for name, text in columns.items():
        try:
            parse_type(text, name)
        except ConfigurationError as problem:
            found.append(Mistake(("columns", name), problem.what, problem.remedy, stand_in="string"))
    return found


def columns_of(given: Mapping[str, Any]) -> dict[str, str]:
    """The columns of a schema file, from name to type. Raises ConfigurationError."""
    content = read_schema(given["schema_file"])
    if given.get("format") == "avro":
        wire = avro_wire((content.decode(),), given["schema_file"])
    elif given.get("format") == "protobuf" and given.get("message"):
        wire = message_wire(Messages(content).named(given["message"]))
    else:
        return {}
    if wire.kind != "record":
        raise ConfigurationError(f"the schema is {wire}, not a record", remedy="declare one column")
    rename = given.get("rename")
    fields = pa.struct(natural_fields(wire))
    return columns_text(list(Renaming(rename).as_columns(fields) if isinstance(rename, dict) else fields))


def columns_text(fields: list[pa.Field]) -> dict[str, str]:
    return {field.name: field_text(field) for field in fields}
