"""The `tables` part of a pipeline file: the destination tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr, field_validator

from jobs.spec.base import Spec
from jobs.spec.metadata import COORDINATES, NAMES, PATTERN
from jobs.spec.new_tables import Named
from jobs.spec.routing import Route
from jobs.spec.table_templates import each
from resources.config_files.mistakes import Mistake, Path, refuse
from resources.errors import ConfigurationError

# The most seconds that a batch or a merge may take: what began earlier is taken for dead.
LONGEST = 86_400

Mode = Literal["append", "upsert", "upsert_delete", "delete"]
# Parts of a table's name: characters of topic names, so that tables can be named after topics; and placeholders in
# braces for a part of a topic's name (`source.for_each`), or of a value (`new_tables`).
PLAIN_PART = r"(?:[A-Za-z0-9_]|\{[^{}]+\})+"
NAME_PART = r"(?:[A-Za-z0-9_-]|\{[^{}]+\})+"
# The pattern of a qualified table name; a placeholder alone may stand for one.
TABLE_NAME = rf"^(?:{NAME_PART}(\.{NAME_PART})+|\{{[^{{}}]+\}})$"


# What to do with a value that the table's system cannot represent.
OutOfRange = Literal["refuse", "clamp", "null"]
OnReplaced = Literal["hold", "keep"]


def out_of_range_option(values: str) -> Any:
    """The option for kinds that cannot represent some values; `values` describes these."""
    return Field(
        "refuse",
        description=f"{values}: refuse (the row is a dead letter), clamp (store the nearest value there is), or null. "
        "Keys and the column of `changes.order_by` are always refused",
    )


class Evolution(Spec):
    """Which schema changes are allowed; anything else is refused before a byte is written."""

    add_columns: bool = Field(True, description="new columns, nested ones too, as optional")
    widen_types: bool = Field(True, description="int to long, float to double, decimal to more digits")
    relax_required: bool = Field(True, description="required to optional")


class Table(Spec):
    """The options of destination tables of every kind. Each kind has its own model, derived from this one."""

    kind: str
    connection: str
    table: str
    mode: Mode = Field(
        description="append: one row per record, without deletes; upsert: one row per key, deletes are ignored; "
        "upsert_delete: one row per key, a delete removes it; delete: one row per record, a delete "
        "removes all rows of its key"
    )
    deletes: Literal["leave_out", "rows"] = Field(
        "leave_out",
        description="modes append and upsert. leave_out: deletes are ignored; rows: a delete is a row too, with "
        "the key and those values of the deleted row that the record has. Columns of values are then "
        "optional, and the metadata column `op` says which rows are deletes",
    )
    route: Route | None = None
    create: bool = Field(True, description="create the table when it is missing")
    evolve: Evolution = Evolution()
    metadata_columns: list[str] = Field(
        default_factory=list,
        description="any of topic, partition, offset, timestamp, batch, op, key, headers, `header:<name>` and "
        "record, as columns `_topic`, … (`__partition` in Iceberg and BigQuery). The last five can "
        "have another name: `key as kafka_key`",
        examples=[["topic", "partition", "offset", "header:trace-id as trace"]],
    )
    time_limit_seconds: int = Field(
        3600, gt=0, le=LONGEST, description="after this a merge is given up, and retried later"
    )
    max_commit_attempts: int = Field(
        8, ge=1, description="how often a merge starts again because another writer has committed"
    )
    _named: Named | None = PrivateAttr(None)

    @field_validator("metadata_columns")
    @classmethod
    def _is_metadata(cls, written: list[str]) -> list[str]:
        remedy = f"name one of {', '.join(NAMES)}, or `header:` and a header's name"
        wrong = [n for n, one in enumerate(written) if not re.fullmatch(PATTERN, one)]
        refuse(Mistake((n,), f"{written[n]} is not metadata of a record", remedy) for n in wrong)
        return written

    @property
    def named(self) -> Named | None:
        """The name that records gave the table, if they named it (`new_tables`)."""
        return self._named

    def of_name(self, named: Named, table: str) -> Self:
        """This entry as the table that records have named."""
        found = self.model_copy(update={"table": table})
        found._named = named
        return found

    @property
    def needs_key(self) -> bool:
        return self.mode != "append"

    @property
    def has_unique_key(self) -> bool:
        """Whether a key has one row at the most. Others have a row for each record."""
        return self.mode in ("upsert", "upsert_delete")

    @property
    def has_coordinates(self) -> bool:
        """Whether rows are recognized: by a key, or by the coordinates of their records."""
        return self.has_unique_key or {*COORDINATES} <= {*self.metadata_columns}

    @property
    def loses_rows(self) -> bool:
        """Whether deletes remove rows."""
        return self.mode in ("upsert_delete", "delete")

    @property
    def shows_deletes(self) -> bool:
        """Whether a delete counts against other changes of its key: it removes the row, or takes its place."""
        return self.loses_rows or (self.mode == "upsert" and self.deletes_are_rows)

    @property
    def deletes_are_rows(self) -> bool:
        """Whether a delete is a row like any other change."""
        return self.deletes == "rows"

    def named_columns(self) -> Iterator[tuple[Path, str]]:
        """The columns in options of the kind, each with the option's path; the table has to have them."""
        yield from ()

    def has_column(self, name: str, declared: Sequence[str]) -> bool:
        """Whether the table has a column of this name; `declared` are those of the pipeline file."""
        return name in declared

    @property
    def title(self) -> str:
        """Kind and table, for people; with the connection if it is not the default.

        Unique in a pipeline: ``iceberg air.flights``, ``iceberg air.flights on lake2``.
        """
        other = "" if self.on_usual_connection else f" on {self.connection}"
        return f"{self.kind} {self.table}{other}"

    def is_called(self, text: str) -> bool:
        """Whether the text means this table: its name, with or without the kind, or its asset in Dagster."""
        return text in (self.table, f"{self.kind} {self.table}", self.title, "/".join(self.full_path))

    @property
    def full_path(self) -> list[str]:
        """Kind, the connection if it is not the default, and the parts of the name; for a template those of the name
        for all its tables."""
        other = [] if self.on_usual_connection else [self.connection]
        return [self.kind, *other, *each(self.table).split(".")]

    @property
    def place(self) -> tuple[str, str, str]:
        """The same for entries that name the same table."""
        return self.kind, self.connection, self.table.lower()

    @property
    def on_usual_connection(self) -> bool:
        """Whether it uses the default connection of its kind."""
        return bool(self.connection == type(self).model_fields["connection"].default)


def tables_called(tables: Sequence[Table], text: str) -> list[Table]:
    """Those of these tables that the text means (`Table.is_called`). A whole title means no table on another connection
    besides."""
    return [table for table in tables if table.title == text] or [table for table in tables if table.is_called(text)]


def table_named(pipeline: str, tables: Sequence[Table], text: str) -> Table:
    """The one of these tables that a person means (`tables_called`).

    Raises:
        ConfigurationError: there is none, or more than one.
    """
    found = tables_called(tables, text)
    if len(found) != 1:
        problem = "more than one table" if found else "no table"
        remedy = f"name one of {', '.join(repr(table.title) for table in found or tables)}"
        raise ConfigurationError(f"pipeline {pipeline} has {problem} {text!r}", remedy=remedy)
    return found[0]
