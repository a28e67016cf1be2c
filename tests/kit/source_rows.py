"""What a table of PostgreSQL holds, and whether a table here holds the same, value by value."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np

from tests.kit.postgres import Postgres

_COLUMNS = """SELECT column_name, data_type FROM information_schema.columns
WHERE table_schema = '{schema}' AND table_name = '{name}' ORDER BY ordinal_position"""
_TABLES = """SELECT table_schema || '.' || table_name FROM information_schema.tables
WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"""

Rows = Counter[tuple[object, ...]]


@dataclass(frozen=True)
class SourceTable:
    """A table of PostgreSQL at one moment.

    Attributes:
        columns: name to PostgreSQL's type.
        rows: each with the number of times that it is there.
    """

    columns: Mapping[str, str]
    rows: Rows

    def differences(self, ours: Sequence[Mapping[str, Any]]) -> list[str]:
        """The first rows that only one side has; `ours` may have more columns."""
        found: Rows = Counter(tuple(_value(row[name], kind) for name, kind in self.columns.items()) for row in ours)
        missing, more = self.rows - found, found - self.rows
        return [f"missing {row}" for row in list(missing)[:3]] + [f"too many {row}" for row in list(more)[:3]]


def tables(postgres: Postgres) -> list[str]:
    """`<schema>.<table>` of all of them."""
    return [row[0] for row in postgres.sql(_TABLES)]


def read(postgres: Postgres, table: str) -> SourceTable:
    schema, name = table.split(".")
    columns = {row[0]: row[1] for row in postgres.sql(_COLUMNS.format(schema=schema, name=name))}
    rows = (json.loads(line[0], parse_float=Decimal) for line in postgres.sql(f"SELECT to_json(t) FROM {table} t"))
    return SourceTable(
        columns, Counter(tuple(_value(row[column], kind) for column, kind in columns.items()) for row in rows)
    )


def _value(value: Any, kind: str) -> object:
    """A value in one form, whether PostgreSQL writes it in JSON or a client of another system gives it."""
    return None if value is None else _READ.get(kind, _plain)(value)


def _plain(value: Any) -> object:
    return value


def _instant(value: Any) -> datetime:
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)


def _wall_clock(value: Any) -> datetime:
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found.replace(tzinfo=None)


def _document(value: Any) -> str:
    """Lists and objects that are text in one system and not in another."""
    found = json.loads(value, parse_float=Decimal) if isinstance(value, str) else value
    return json.dumps(found, sort_keys=True, default=lambda number: str(number.normalize()))


def _bytes(value: Any) -> bytes:
    return bytes.fromhex(value[2:]) if isinstance(value, str) else bytes(value)


_READ: dict[str, Callable[[Any], object]] = {
    "timestamp with time zone": _instant,
    "timestamp without time zone": _wall_clock,
    "date": lambda value: date.fromisoformat(value) if isinstance(value, str) else value,
    "time without time zone": lambda value: time.fromisoformat(value) if isinstance(value, str) else value,
    "bytea": _bytes,
    "numeric": lambda value: Decimal(str(value)).normalize(),
    # As text, so that NaN is the same as NaN.
    "real": lambda value: str(np.float32(value)),
    "double precision": lambda value: str(float(value)),
    "ARRAY": _document,
    "json": _document,
    "jsonb": _document,
    "uuid": str,
}
