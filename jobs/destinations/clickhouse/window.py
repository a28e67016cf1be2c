"""The deduplication window: how many parts a table remembers, and how many it has to.

It counts parts, not inserts: an insert into n table partitions makes n parts (tried: 3 chunks over 3 partitions doubled
rows at windows of 4 and 8). The window must be twice the chunks of a step times the partitions that one insert may
touch. A step has as many batches as the window has room for; a single batch that is too large is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobs.destinations.clickhouse.engines import deduplication_window
from jobs.destinations.clickhouse.present_table import Present, describe
from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection
from resources.errors import ConfigurationError
from sql import quote, render

_MOST_PARTITIONS = "max_partitions_per_insert_block"
_UNLIMITED = 1_000_000
# The least window that we give or propose: room for later batches too.
_USUAL = 1000
# The topic-partitions for which tables that we create have room: each may add one smaller chunk a batch.
_TOPIC_PARTITIONS = 64


def most_partitions(connection: ClickHouseConnection) -> int:
    """The most partitions of a table that one insert may touch: ClickHouse's default, or the connection's limit."""
    asked = connection.settings.get(_MOST_PARTITIONS, "")
    # ClickHouse itself refuses other values.
    return int(asked) or _UNLIMITED if asked.isdecimal() else 100


def needed(chunks: int, partitions: int) -> int:
    """The smallest window for steps of this number of chunks, each of which may touch this number of partitions."""
    return 2 * chunks * partitions


def for_new_table(max_records: int, chunk_rows: int, partitions: int) -> int:
    """The window of a table that we create: enough for its largest batches, with a reserve."""
    return max(_USUAL, needed(max_records // chunk_rows + _TOPIC_PARTITIONS, partitions))


@dataclass(frozen=True)
class DeduplicationWindow:
    """The deduplication window of one table.

    Attributes:
        table: its name, for people.
        parts: how many parts it remembers; None: it deduplicates nothing.
        partitions: how many of its partitions an insert may touch.
    """

    table: str
    setting: str
    parts: int | None
    partitions: int

    @property
    def chunks(self) -> int:
        """The largest number of chunks of a step."""
        return _UNLIMITED if self.parts is None else self.parts // needed(1, self.partitions)

    def check(self, chunks: int) -> None:
        """Refuses more chunks than the window has room for.

        Raises:
            ConfigurationError: names the table and the number needed.
        """
        wanted = needed(chunks, self.partitions)
        if self.parts is not None and self.parts < wanted:
            name = quote("clickhouse", self.table.partition(",")[0].split(".", 1))
            raise ConfigurationError(
                f"table {self.table} remembers {self.parts} parts for deduplication, and a batch needs {wanted}: an "
                "insert that is done again would double rows",
                where="clickhouse",
                remedy=f"ALTER TABLE {name} MODIFY SETTING {self.setting} = {max(_USUAL, wanted)} (at least {wanted}), "
                "or make chunk_rows larger",
                needed=wanted,
                window=self.parts,
            )


def windows(server: ClickHouseServer, path: Sequence[str], present: Present) -> list[DeduplicationWindow]:
    """The windows of the table, and of the tables that its materialized views fill."""
    found = [_window(server, ".".join(path), present, present.partitioned)]
    for name, target in _filled_by_views(server, present, seen=[tuple(path)]):
        title = f"{name}, which a materialized view fills,"
        found.append(_window(server, title, target, target.partitioned or present.partitioned))
    return found


def _window(server: ClickHouseServer, name: str, present: Present, partitioned: bool) -> DeduplicationWindow:
    setting = deduplication_window(present.engine)
    partitions = most_partitions(server.connection) if partitioned else 1
    if "MergeTree" not in present.engine:
        return DeduplicationWindow(name, setting, None, partitions)
    found = re.search(rf"\b{setting} = (\d+)", present.engine_full)
    return DeduplicationWindow(name, setting, int(found[1]) if found else _default(server, setting), partitions)


def _default(server: ClickHouseServer, setting: str) -> int:
    found = server.rows(render("clickhouse", "merge_tree_default"), {"name": setting})
    return int(found[0]["value"]) if found else 0


def _filled_by_views(
    server: ClickHouseServer, present: Present, seen: list[tuple[str, ...]]
) -> Iterator[tuple[str, Present]]:
    """The tables that materialized views fill when rows are inserted, also indirectly."""
    for view in present.views:
        if view in seen:
            continue
        seen.append(view)
        found = describe(server, view)
        if found is None or found.engine != "MaterializedView":
            continue
        path = _target(view, found)
        target = describe(server, path)
        if target is not None:
            yield ".".join(path), target
            yield from _filled_by_views(server, target, seen)


def _target(view: tuple[str, str], found: Present) -> tuple[str, str]:
    """The table that a materialized view writes: the one after TO, or its inner table."""
    name = r"(?:`((?:[^`\\]|\\.)+)`|(\w+))"
    to = re.search(rf"\bTO {name}(?:\.{name})?", found.statement.split(" AS SELECT")[0])
    if to is None:
        return view[0], f".inner_id.{found.id}"
    parts = [part for part in to.groups() if part]
    return (parts[0], parts[1]) if len(parts) == 2 else (view[0], parts[0])
