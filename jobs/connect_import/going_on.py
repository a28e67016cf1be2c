"""Continues tables that a connector has filled: the pipeline gets their columns, types and nullability."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.connect_import import connect, transforms
from jobs.connect_import.chain import Chain, name
from jobs.connect_import.known import NOT_NULL, KnownTable, all_of, struct_columns
from jobs.spec.envelope import OP_COLUMN
from jobs.spec.metadata import metadata_of

if TYPE_CHECKING:
    from jobs.connect_import.sink import Sink

_TIMES = ("timestamp", "date")
# A record's timestamp is milliseconds to Connect; Spark's cast of one to a number gives seconds.
_IN_STATEMENT, _NUMBER = re.compile(r"(?<![\w`'(])_timestamp(?![\w`'])"), "unix_millis(_timestamp)"


@dataclass(frozen=True)
class GoingOn:
    """
    Attributes:
        sink: has the columns that the connector fills besides the records' fields.
        tables: the known tables that one pipeline writes, by name.
    """

    sink: Sink
    tables: Mapping[str, KnownTable]

    @property
    def columns(self) -> dict[str, str]:
        """The rows' columns, without those for the key and Kafka's metadata."""
        filled = {self.sink.record_column(), self.sink.key_column()}
        return all_of(self.tables.values(), filled)

    @property
    def key(self) -> list[str]:
        """The columns that identify a row, if the tables have keys and agree."""
        keys = {tuple(table.key) for table in self.tables.values()}
        return list(next(iter(keys))) if len(keys) == 1 else []

    @property
    def key_columns(self) -> dict[str, str]:
        """The columns of the record's key, if the sink wrote it to one column."""
        whole = self.sink.key_column()
        kinds = [table.columns[whole] for table in self.tables.values() if whole in table.columns]
        return (struct_columns(kinds[0]) or {whole: kinds[0].removesuffix(NOT_NULL)}) if kinds else {}

    def follow(self, key: Collection[str] = ()) -> transforms.Followed:
        """The chain of transforms, applied to the records from which these tables' rows were made.

        Args:
            key: the columns that identify a row, if the connector names them.
        """
        columns, kept = self.columns, self.sink.kept()
        records = transforms.before(self.sink.configuration, columns)
        operation = self.sink.operation_field()
        followed = transforms.follow(self.sink.configuration, records, operation, key or self.key)
        chain = followed.chain
        for column in [c for c in chain.made if c not in columns and c not in (*kept, *chain.metadata)]:
            chain.drop(column)  # the sink ignored it too
        for column, kind in columns.items():
            if (made := chain.made.get(column, name(column))) != name(column):
                chain.make(column, made if kind.startswith(_TIMES) else _IN_STATEMENT.sub(_NUMBER, made), kind)
        if connect.is_plain_json(self.sink.configuration) and chain.value_format != "string":
            _take_any_value(chain)
        return followed

    def _new(self, chain: Chain, present: Collection[str]) -> list[str]:
        """Columns that rows need, whether or not the sink wrote them, and that are not there."""
        return [c for c in self.sink.kept() if c in chain.made and c not in (*present, OP_COLUMN)]

    def entry(self, part: dict[str, Any], chain: Chain) -> dict[str, Any]:
        """The entry of a table in `tables`, with its types."""
        present = self.tables.get(part["table"])
        types = present.entry(self._rows(chain)) if present else {}
        needed = _needed(part, present)
        if present and self._new(chain, present.columns):
            needed["add_columns"] = True
        return {**part, "evolve": {**part["evolve"], **needed}, **types}

    def _rows(self, chain: Chain) -> dict[str, str]:
        known = {**chain.read_columns, **self.columns}
        return {column: known[column] for column in chain.made if column in known}

    def todo(self, chain: Chain) -> list[str]:
        lines = [line for table in self.tables.values() for line in table.todo]
        every = self.columns
        lines += [
            f"{column}: says which table a record is for, and is a column of none: the first run adds it, for routes"
            for column in (self._new(chain, every) if self.tables else ())
        ]
        for title, table in self.tables.items():
            if table.zones and connect.is_plain_json(self.sink.configuration):
                zones = ", ".join(f"{column} ({zone})" for column, zone in table.zones.items())
                lines.append(f"{title}: a time that is text without a zone means UTC, where the sink's system took the "
                             f"zone of the column: {zones}; where records have such, declare timestamp_ntz, and write "
                             "cast(to_utc_timestamp(<column>, '<zone>') as timestamp) in source.transform")  # fmt: skip
            if lacking := [c for c in every if c not in table.columns]:
                lines.append(f"{title} has no {', '.join(lacking)}, which other tables have: the first run adds them "
                             "(`evolve.add_columns`), or make a pipeline for each table")  # fmt: skip
            required = [c for c, kind in table.columns.items() if kind.endswith(NOT_NULL)]
            if relaxed := [c for c in required if c in every and not every[c].endswith(NOT_NULL)]:
                lines.append(f"{title} requires {', '.join(relaxed)}, and other tables do not: make a pipeline for "
                             "each table, or let `evolve.relax_required` make them optional")  # fmt: skip
        return lines


def _needed(part: Mapping[str, Any], present: KnownTable | None) -> dict[str, bool]:
    """What `evolve` has to allow for the first run, whatever the sink did itself."""
    logs, appends = part.get("deletes") == "rows", part.get("mode") == "append"
    ours = {metadata.column for metadata in metadata_of(part.get("metadata_columns", []))}
    adds, relaxes = bool(ours), logs
    if present:
        adds = present.lacks_ours or not ours <= present.columns.keys()
        relaxes = logs and any(appends or column not in present.key for column in present.required)
    return {**({"add_columns": True} if adds else {}), **({"relax_required": True} if relaxes else {})}


def _take_any_value(chain: Chain) -> None:
    """Declares columns that reach a table of texts as they are as `text`: the sinks took numbers and objects there."""
    for column, kind in chain.columns.items():
        if (
            kind in ("string", f"string{NOT_NULL}")
            and column not in chain.metadata
            and name(column) in chain.made.values()
        ):
            chain.columns[column] = kind.replace("string", "text")
