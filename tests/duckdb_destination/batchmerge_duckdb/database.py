"""The file: opened for each piece of work, so that other processes get their turn; and its errors as Batchmerge's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
from batchmerge.resources.errors import CommitFailed, TerminalError, Unavailable

from batchmerge_duckdb.spec import DuckDbConnection


@contextmanager
def database(connection: DuckDbConnection, where: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """The open file, in UTC.

    Raises:
        Unavailable: another process had it open all the time. CommitFailed: another writer was faster.
    """
    opened = _open(connection, where)
    try:
        opened.execute("SET TimeZone = 'UTC'")
        yield opened
    except (duckdb.TransactionException, duckdb.ConstraintException) as conflict:
        raise CommitFailed("another run was faster", where=where, remedy="plan again") from conflict
    except duckdb.Error as problem:
        raise TerminalError(f"DuckDB refuses: {problem}", where=where, remedy="see DuckDB's message") from problem
    finally:
        opened.close()


@contextmanager
def transaction(connection: DuckDbConnection, where: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """All that is done inside becomes visible at its end, or nothing of it."""
    with database(connection, where) as opened:
        opened.begin()
        yield opened
        opened.commit()


def _open(connection: DuckDbConnection, where: str) -> duckdb.DuckDBPyConnection:
    end = time.monotonic() + connection.patience_seconds
    while True:
        try:
            connection.file.parent.mkdir(parents=True, exist_ok=True)
            return duckdb.connect(connection.file)
        except (duckdb.IOException, OSError) as locked:
            if time.monotonic() > end:
                raise Unavailable(
                    f"{connection.file} cannot be opened: {locked}",
                    where=where,
                    remedy="close it in the other process, or mend the file's permissions",
                ) from locked
            time.sleep(0.2)
