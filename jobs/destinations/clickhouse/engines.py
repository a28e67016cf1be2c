"""What is known of a ClickHouse table by the name of its engine, or by its definition."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Of engines that join rows with one sorting key; the second ones make values that no record has.
_CHOOSING, _COMPUTING = "Replacing|Collapsing", "Summing|Aggregating|Coalescing|Graphite"

NOT_WRITTEN = {
    "View": "it is a view, which takes no rows",
    "Buffer": "its engine, Buffer, holds rows in memory: a server that ends loses some that are committed, and an "
    "insert that is repeated doubles them",
}
"""Engines of tables into which nothing is merged, and why."""


def joins_rows(engine: str) -> bool:
    """Whether an engine joins rows, so that a table lacks records although it got all of them."""
    return re.search(f"{_CHOOSING}|{_COMPUTING}", engine) is not None


def why_it_lacks(engine: str) -> str | None:
    """Why a table with this engine lacks records although it got all of them; None if it has them."""
    if joins_rows(engine):
        return "joins rows"
    return "stores no rows" if engine == "Null" else None


def engine_warnings(engine: str) -> Iterator[str]:
    """What a person should know of an append table with this engine."""
    if joins_rows(engine):
        yield (
            f"the engine {engine} joins rows, so nothing shows which records the table lacks: replays, retries of dead "
            "letters and recovery without KeeperMap state are refused. For one row per key use mode upsert, which "
            "allows all three"
        )
    elif why := why_it_lacks(engine):
        yield (
            f"the engine {engine} {why}, so nothing shows which records its views have: replays and retries of dead "
            "letters are refused"
        )


def computes_values(engine: str) -> bool:
    """Whether an engine joins rows to one with values of several records."""
    return re.search(_COMPUTING, engine) is not None


def replication(engine: str) -> str:
    """`Replicated` or `Shared`, if the name of an engine begins with it; else empty: its tables are not replicated."""
    found = re.match("Replicated|Shared", engine)
    return found[0] if found else ""


def deduplication_window(engine: str) -> str:
    """The setting that says how many parts a table remembers."""
    return "replicated_deduplication_window" if replication(engine) else "non_replicated_deduplication_window"


def removes_old_rows(engine_full: str) -> bool:
    """Whether the table's TTL removes rows, and does not only move or recompress them."""
    found = re.search(r" TTL (.*?)(?: SETTINGS |$)", engine_full, re.DOTALL)
    rules = re.split(r",(?![^(]*\))", found[1]) if found else []
    return any(not re.search(r"\b(TO (DISK|VOLUME)|RECOMPRESS)\b", rule) for rule in rules)
