"""A ClickHouse table's rows, read from all of its endpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from jobs.destinations.clickhouse.columns import Column, clickhouse_type
from jobs.destinations.clickhouse.engines import computes_values, removes_old_rows, why_it_lacks
from jobs.destinations.clickhouse.present_table import Present
from jobs.destinations.clickhouse.present_types import compared_types
from jobs.destinations.clickhouse.shard import Shard
from jobs.destinations.clickhouse.wanted_table import Layout
from jobs.destinations.reading import EXPIRY, TableReader
from jobs.destinations.row_values import RowValues
from jobs.destinations.shares import ReadShare, rows_of, share_count
from jobs.spec.columns import RowColumn
from resources.clickhouse import ClickHouseServer
from sql import CLICKHOUSE, quote, render

_ROW = "__bm_row"
# The most rows that ClickHouse counts (by keys and versions) in a fraction of a second.
_MOST_COUNTED = 5_000_000


@dataclass(frozen=True, kw_only=True)
class ClickHouseValues(RowValues):
    """The server itself converts expected values; columns that are `compared_in_python` are read as text.

    Attributes:
        own: the table's columns.
    """

    server: ClickHouseServer
    own: Sequence[Column]

    def texts(self) -> set[str]:
        """Columns that are read as text."""
        # A key of a named type is compared in its declared type.
        keys = {c.name for c in self.columns if c.name in self.named_types and pa.types.is_string(c.type)}
        return keys | {c.name for c in self.compared_in_python}

    def stored(self, column: RowColumn, values: pa.Array) -> Sequence[object]:
        own = next(c for c in self.own if c.name == column.name)
        rows = pa.table({own.name: values, _ROW: pa.array(range(len(values)), pa.int64())})
        text = render("clickhouse", "stored_values", column=own)
        structure = f"{quote('clickhouse', own.name)} {own.wire}, {_ROW} Int64"
        answer: list[object] = self.server.select_with(text, rows, structure)["stored"].to_pylist()
        return answer


class ClickHouseReader(TableReader):
    """Queries every endpoint; in tables of upserts only the last version of a row counts (FINAL)."""

    def __init__(self, values: ClickHouseValues, layout: Layout, shards: Sequence[Shard]) -> None:
        super().__init__(values, CLICKHOUSE, layout.path, final=layout.versioned)
        self._texts, self._own = values.texts(), values.own
        self._layout, self._shards = layout, shards

    def answers(self, text: str) -> list[pa.Table]:
        return [shard.server.arrow(text) for shard in self._shards]

    def present(self) -> list[str]:
        names = {name for one in self._described() for name in one.types}
        return sorted(names - {*self._layout.added, *self._layout.origin})

    def known_count(self) -> int | str | None:
        stored = _stored(self._found())
        if not self._layout.versioned:
            return stored
        # For tables of upserts the server knows only the number of stored rows, with replaced versions.
        return self.count() if stored <= _MOST_COUNTED else f"not counted: {stored:,} stored rows are too many"

    def rows_are_records(self) -> bool:
        return not any(computes_values(one.engine) for one in self._described())

    def reasons_to_lack(self) -> Iterator[str]:
        described = self._described()
        if not self._layout.versioned:
            reasons = {one.engine: why_it_lacks(one.engine) for one in described}
            yield from sorted(f"its engine, {engine}, {why}" for engine, why in reasons.items() if why)
        if any(removes_old_rows(one.engine_full) for one in described):
            yield EXPIRY

    def _found(self) -> list[tuple[Shard, Present]]:
        """The table on each endpoint that has it."""
        described = ((shard, shard.present()) for shard in self._shards)
        return [(shard, one) for shard, one in described if one]

    def _described(self) -> list[Present]:
        return [one for _, one in self._found()]

    @contextmanager
    def rows(self, spark: SparkSession, limit: int) -> Iterator[DataFrame]:
        yield rows_of(spark, list(self._shares(spark, limit)), self.values.schema)

    def _shares(self, spark: SparkSession, limit: int) -> Iterator[ReadShare]:
        names = [c.name for c in self.values.columns]
        found = self._found()
        casts = compared_types(self._own, found[0][1].types) if found else {}
        # Keys and coordinates of a named type: Arrow has no such type, or a number for a time. As a String bytes
        # would lose those that are zero at their end.
        named = [c for c in self._own if c.declared and not c.is_bytes and c.name not in self._texts]
        casts |= {c.name: clickhouse_type(c.arrow, True) for c in named}
        count = 1 if limit else share_count(spark, _stored(found) // len(self._shards))
        for number in range(count):
            # By a hash of the sorting key, so that all versions of a row are in one share, as FINAL needs.
            share = {"by": self._layout.keys if self._layout.versioned else self._layout.order_by, "number": number}
            text = self.text(
                "some_rows",
                columns=names,
                limit=limit,
                texts=self._texts,
                casts=casts,
                share=share if count > 1 else None,
                of=count,
            )
            yield from (ReadShare(partial(shard.server.batches, text), self.values) for shard in self._shards)


def _stored(found: Sequence[tuple[Shard, Present]]) -> int:
    """The number of stored rows, with replaced versions."""
    return sum(shard.row_count(one) for shard, one in found)
