"""How the bytes of records are encoded, where their schema is, and the units of times that JSON has as numbers: parts
of `source` in a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Discriminator, Field, Tag

from jobs.decode.foreign import foreign_formats
from jobs.decode.json_dialect import OTHERS
from jobs.schema.types import form_of, inside, parse_columns
from jobs.spec.base import Spec
from resources.config_files.mistakes import Mistake, did_you_mean, one_of
from resources.config_files.words import choice
from resources.errors import ConfigurationError
from resources.project import project_folder

# Paths of schema files are relative to this folder.
PROJECT = project_folder() or Path.cwd()
_OWN = ("json", "connect_json", "avro", "protobuf", "string", "bytes")
_REGISTERED = ("avro", "json", "protobuf")
_WITH_FILE = ("avro", "protobuf")
ONE_COLUMN = ("string", "bytes")

Unit = Literal["s", "ms", "us", "ns"]
Units = Annotated[
    Annotated[Unit, Tag("one")] | Annotated[dict[str, Unit], Tag("by column")],
    Discriminator(lambda given: "by column" if isinstance(given, dict) else "one"),
]
BY_COLUMN = 'for all, or by column: `{"*": us, created: ms}` (without `"*"`, others have ms)'


class Encoding(Spec):
    """How bytes are encoded, whatever the columns are."""

    format: str = Field(
        "json",
        description="how the bytes are encoded: json, connect_json (Kafka Connect's JSON with a schema in each "
        "record), avro, protobuf, string, bytes, or the format of an installed package",
    )
    options: dict[str, str] = Field(default_factory=dict, description="options of the format of an installed package")
    registry: str | None = Field(
        None,
        description="name of a registry's connection: records (Avro, Protobuf, JSON Schema) name their schemas as the "
        "serializers of Confluent (in the record, or in a header) or of AWS Glue do; an unknown id makes a dead letter",
    )
    schema_file: str | None = Field(
        None,
        description="Avro: a schema (.avsc), of all records or, with `registry`, the reader's; Protobuf: a descriptor "
        "set (protoc --include_imports --descriptor_set_out). From the project's folder",
    )
    message: str | None = Field(None, description="Protobuf with `schema_file`: full name of the message")

    def own_mistakes(self) -> Iterator[Mistake]:
        described = self.format == "protobuf" and self.schema_file
        known = [*_OWN, *(foreign_formats() if self.format not in _OWN or self.options else ())]
        if self.format not in known:
            yield Mistake(("format",), *choice(self.format, self.format, known))
        if self.options and self.format in _OWN:
            yield Mistake(("options",), f"the format {self.format} has no options", "leave it out")
        for option, formats in (("registry", _REGISTERED), ("schema_file", _WITH_FILE)):
            if getattr(self, option) and self.format not in formats:
                what = f"it goes with {one_of(formats, 'and')}, not with {self.format}"
                yield Mistake((option,), what, "leave it out, or change `format`")
        if self.format in _WITH_FILE and not (self.registry or self.schema_file):
            what, remedy = f"{self.format} needs a schema", "name a `registry` or a `schema_file`"
            yield Mistake(("format",), what, remedy, goes_by=(("registry",), ("schema_file",)))
        if described and self.registry:
            yield Mistake(("schema_file",), "there is a `registry` too", "name one of them: protobuf takes only one")
        if self.message and not described:
            yield Mistake(("message",), "it goes with protobuf and a `schema_file`", "leave it out")
        if described and not self.message:
            remedy = "name the message of the `schema_file`, with its package"
            yield Mistake(("message",), "it is missing", remedy, at_key=True)

    @property
    def schema_bytes(self) -> bytes:
        """The content of the schema file; empty without one. Raises ConfigurationError."""
        return read_schema(self.schema_file) if self.schema_file else b""


def read_schema(name: str) -> bytes:
    """The content of a schema file. Raises ConfigurationError if it cannot be read."""
    path = Path(name) if Path(name).is_absolute() else PROJECT / name
    try:
        return path.read_bytes()
    except OSError as problem:
        raise ConfigurationError(
            f"the schema file cannot be read: {problem.strerror}",
            where=name,
            remedy="write its path from the project's folder",
        ) from None


def unit_mistakes(units: Unit | Mapping[str, Unit] | None, columns: Mapping[str, str]) -> Iterator[Mistake]:
    """Mistakes: units of what is no column of these with times, which is at least one."""
    if units is None or isinstance(units, str):
        return
    known = [field.name for field in parse_columns(columns) if _has_times(field)]
    for name in units:
        if name not in (*known, OTHERS):
            yield Mistake((name,), f"{name} is not a timestamp column", did_you_mean(name, known), at_key=True)


def _has_times(field: pa.Field) -> bool:
    is_time = pa.types.is_timestamp(field.type) or form_of(field) == "time"
    return bool(is_time) or any(map(_has_times, inside(field.type)))
