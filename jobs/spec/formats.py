"""How the bytes of a record's key or value become columns: part of `source` in a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field, model_validator

from jobs.decode.envelope_shape import wire_type
from jobs.decode.text import OneValue
from jobs.schema.avro import avro_wire
from jobs.schema.found_fields import Excluded
from jobs.schema.protobuf import Messages, message_wire
from jobs.schema.renaming import Renaming
from jobs.schema.types import field_text, parse_columns
from jobs.schema.wire import natural_fields
from jobs.spec.base import TypeText
from jobs.spec.encoding import ONE_COLUMN, Encoding, read_schema
from jobs.spec.envelope import AUTO, Envelope, HasEnvelope
from resources.config_files.mistakes import Mistake, Mistakes, did_you_mean
from resources.errors import ConfigurationError


class Format(Encoding, HasEnvelope):
    """How the bytes of a record's key or value become columns."""

    rename: dict[str, str] = Field(
        default_factory=dict,
        description="field of records to the name of its column, for example `{custID: customer_id}`; a nested one by "
        "its path (`address.zip: postal_code`, `lines.element.nr: number`)",
    )

    columns: dict[str, TypeText] = Field(
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

    def own_mistakes(self) -> Iterator[Mistake]:
        found = []
        if not self.columns and not self.takes_new_columns:
            found.append(self._no_columns())
        elif self.format in ONE_COLUMN and len(self.columns) != 1:
            what = f"the format {self.format} gives one column, and {len(self.columns)} are declared"
            found.append(Mistake(("columns",), what, "declare one"))
        elif self.format in ONE_COLUMN:
            found += self._one_column_mistakes()
        if self.format in ONE_COLUMN and self.envelope:
            found.append(Mistake(("envelope",), f"the format {self.format} has no envelope", "leave it out"))
        if self.envelope and not found:
            found += self._metadata_mistakes(self.envelope)
        yield from [*found, *self._rename_mistakes()]

    def _one_column_mistakes(self) -> list[Mistake]:
        try:
            OneValue(self.struct, self.format)
        except ConfigurationError as problem:
            return [Mistake(("columns", next(iter(self.columns))), problem.what, problem.remedy)]
        return []

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

    columns: dict[str, TypeText] = Field(
        default_factory=dict,
        description="column name to type. Left out, or `auto`: all fields that the keys of records have when the "
        "first batch is landed. If `changes.key` is left out too, these columns are the key of the "
        "tables",
    )
    column: str | None = Field(
        None,
        description="name of one column for the whole key, as a struct of `columns` (BigQuery sinks write keys "
        "so). Left out: each column of the key is a column of the table",
    )
    unknown_fields: Literal["ignore", "fail"] | None = Field(
        None,
        description="fields of keys without a column: ignore, or fail (the record is bad). Left out: fail if "
        "`columns` are left out, else ignore",
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

    def own_mistakes(self) -> Iterator[Mistake]:
        if self.column and (self.format in ONE_COLUMN or self.envelope or self.rename):
            what = "it is for keys with fields, without an envelope and without `rename`"
            yield Mistake(("column",), what, "leave it out")

    @property
    def struct(self) -> pa.StructType:
        return pa.struct(self.as_columns(list(parse_columns(self.columns))))

    def as_columns(self, fields: Sequence[pa.Field]) -> list[pa.Field]:
        """The columns of these fields: one for each, or one for all."""
        return [pa.field(self.column, pa.struct(list(fields)))] if self.column and fields else list(fields)


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
