"""The columns in ClickHouse's expressions: of partitions and TTL in a pipeline file, and of a table's sorting key.

Expressions that sqlglot cannot parse are left to ClickHouse, which checks them when the table is created (and for
`batchmerge check`).
"""

from __future__ import annotations

import logging
import re

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

# Silences warnings about statements that it parses only in part.
_LOGGER = logging.getLogger("sqlglot")


def partition_columns(expression: str) -> list[str]:
    """``toYYYYMM(at)`` has the column ``at``; ``place.city`` has ``place``."""
    return _columns(f"PARTITION BY {expression}") if expression.strip() else []


def ttl_columns(expression: str) -> list[str]:
    """``at + INTERVAL 1 YEAR DELETE WHERE kind = 1, …`` has the columns ``at`` and ``kind``."""
    return _columns(f"ORDER BY tuple() TTL {expression}") if expression.strip() else []


def times_of_ttl(expression: str) -> list[str]:
    """Columns by which rows expire, not those of conditions; none of a part that says what stands for null."""
    found = dict[str, None]()
    for rule in re.split(r",(?![^(]*\))", expression):
        time = re.split(r"\b(?:DELETE|TO|WHERE|SET|GROUP|RECOMPRESS)\b", rule, flags=re.IGNORECASE)[0]
        if not re.search(r"\b(?:ifNull|coalesce|assumeNotNull)\b", time, re.IGNORECASE):
            found |= dict.fromkeys(ttl_columns(time))
    return list(found)


def sorted_by(sorting_key: str) -> list[str]:
    """``a, lower(b)`` or ``(a, lower(b))`` sorts by ``a`` and an expression; none if it cannot be parsed."""
    try:
        found = sqlglot.parse_one(f"({sorting_key})", dialect="clickhouse").unnest()
    except SqlglotError:
        return []
    parts = found.expressions if isinstance(found, exp.Tuple) else [found]
    return [part.name for part in parts if isinstance(part, exp.Column)]


def _columns(clause: str) -> list[str]:
    """Column names in the order of their first use; none if the clause cannot be parsed."""
    level = _LOGGER.level
    _LOGGER.setLevel(logging.ERROR)
    try:
        made = sqlglot.parse_one(f"CREATE TABLE t (x Int8) ENGINE = MergeTree {clause}", dialect="clickhouse")
    except SqlglotError:
        return []
    finally:
        _LOGGER.setLevel(level)
    properties = made.args.get("properties")
    if not isinstance(made, exp.Create) or properties is None:
        return []
    return sorted({column.parts[0].name for column in properties.find_all(exp.Column)})
