"""A ClickHouse table's rows, read from all of its endpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from jobs.destinations.clickhouse import tables
from jobs.destinations.clickhouse.insertion import to_arrow_file
from jobs.destinations.clickhouse.shard import Shard
from jobs.destinations.clickhouse.tables import Layout
from jobs.destinations.reading import TableReader
from jobs.destinations.refusal import HeldColumn
from jobs.spec.columns import RowColumn
from sql import quote, render

_ROW = "__row"
# Rows that ClickHouse reads through (keys and versions only) in a fraction of a second.
_MOST_COUNTED = 5_000_000


class ClickHouseReader(TableReader):
    """Asks every endpoint; of upserts only the last version of a row counts (FINAL)."""

    def __init__(
        self, columns: Sequence[RowColumn], layout: Layout, shards: Sequence[Shard], held: Sequence[HeldColumn]
    ) -> None:
        super().__init__(columns, layout.table.column_types, held, layout.table.out_of_range)
        self._layout, self._shards = layout, shards

    def ask(self, template: str, **arguments: object) -> list[pa.Table]:
        layout = self._layout
        text = render("clickhouse", template, table=layout.path, final=layout.versioned, **arguments)
        return [shard.server.arrow(text) for shard in self._shards]

    def present(self) -> list[str]:
        names = {name for one in self._described() for name in one.types}
        return sorted(names - set(self._layout.added))

    def known_count(self) -> int | str | None:
        stored = sum(one.rows for one in self._described())
        if not self._layout.versioned:
            return stored
        # Of upserts the server knows stored rows only, replaced ones included.
        return self.count() if stored <= _MOST_COUNTED else f"not counted: {stored:,} stored rows are too many"

    def _described(self) -> list[tables.Present]:
        described = [tables.describe(shard.server, self._layout.path) for shard in self._shards]
        return [one for one in described if one]

    def texts(self) -> Mapping[str, str]:
        types, apart = {c.name: c.type for c in self._layout.columns}, {c.name for c in self.apart()}
        # A key of a named type is looked up as what it was declared as.
        return {c.name: types[c.name] for c in self.columns if c.name in apart or self._is_renamed_text(c)}

    def _is_renamed_text(self, column: RowColumn) -> bool:
        return column.name in self.named_types and pa.types.is_string(column.type)

    def stored(self, column: RowColumn, values: pa.Array) -> Sequence[object]:
        """As the server stores and shows them."""
        own = next(c for c in self._layout.columns if c.name == column.name)
        rows = pa.table({own.name: values, _ROW: pa.array(range(len(values)), pa.int64())})
        text = render("clickhouse", "stored_values", column=own)
        structure = f"{quote('clickhouse', own.name)} {own.wire}, {_ROW} Int64"
        answer = self._shards[0].server.rows_beside(text, to_arrow_file(rows), structure)
        return [row["stored"] for row in answer]
