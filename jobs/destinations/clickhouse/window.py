"""The deduplication window: how many parts a table remembers, and how many it has to.

It counts parts, not inserts: an insert into n table partitions makes n (tried: 3 chunks over 3 partitions doubled rows
at windows of 4 and 8). Needed are twice the chunks of a batch times the partitions that one insert may touch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from jobs.destinations.clickhouse.tables import Present, describe
from resources.clickhouse import ClickHouseServer
from resources.errors import ConfigurationError
from sql import render

# What ClickHouse allows one insert to touch unless told otherwise (max_partitions_per_insert_block).
MOST_PARTITIONS = 100
# Topic-partitions that a table we create is prepared for: each may make one smaller chunk a batch.
_TOPIC_PARTITIONS = 64


def needed(chunks: int, partitioned: bool) -> int:
    """The smallest window for batches of so many chunks."""
    return 2 * chunks * (MOST_PARTITIONS if partitioned else 1)


def for_new_table(max_records: int, chunk_rows: int, partitioned: bool) -> int:
    """The window of a table that we create: enough for its largest batches, and some room."""
    return max(1000, needed(max_records // chunk_rows + _TOPIC_PARTITIONS, partitioned))


def check_window(server: ClickHouseServer, path: Sequence[str], present: Present, chunks: int) -> None:
    """Refuses a window that is too small, of the table or of one that a materialized view behind it fills.

    Raises:
        ConfigurationError: names the table and the number needed.
    """
    wanted = needed(chunks, present.partitioned)
    _check(server, ".".join(path), present, wanted)
    for name, target in _filled_by_views(server, present, seen=[tuple(path)]):
        behind = needed(chunks, target.partitioned or present.partitioned)
        _check(server, f"{name}, which a materialized view fills,", target, behind)


def _check(server: ClickHouseServer, name: str, present: Present, wanted: int) -> None:
    if "MergeTree" not in present.engine:
        return
    setting = "replicated_deduplication_window" if _is_replicated(present) else "non_replicated_deduplication_window"
    found = re.search(rf"\b{setting} = (\d+)", present.engine_full)
    window = int(found[1]) if found else _default(server, setting)
    if window < wanted:
        raise ConfigurationError(
            f"table {name} remembers {window} parts for deduplication, and a batch needs {wanted}: an insert that is "
            "done again would double rows",
            where="clickhouse",
            remedy=f"ALTER TABLE … MODIFY SETTING {setting} = {wanted} (or more), or make chunk_rows larger",
            needed=wanted,
            window=window,
        )


def _default(server: ClickHouseServer, setting: str) -> int:
    found = server.rows(render("clickhouse", "merge_tree_default"), {"name": setting})
    return int(found[0]["value"]) if found else 0


def _is_replicated(present: Present) -> bool:
    return present.engine.startswith(("Replicated", "Shared"))


def _filled_by_views(
    server: ClickHouseServer, present: Present, seen: list[tuple[str, ...]]
) -> Iterator[tuple[str, Present]]:
    """Tables that materialized views fill when rows are inserted, also those behind them."""
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
    """Where a materialized view writes: the table after TO, or its inner table."""
    name = r"(?:`((?:[^`\\]|\\.)+)`|(\w+))"
    to = re.search(rf"\bTO {name}(?:\.{name})?", found.statement.split(" AS SELECT")[0])
    if to is None:
        return view[0], f".inner_id.{found.id}"
    parts = [part for part in to.groups() if part]
    return (parts[0], parts[1]) if len(parts) == 2 else (view[0], parts[0])
