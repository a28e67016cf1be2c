"""The file: opened for each piece of work, so that other processes get their turn; and its errors as Batchmerge's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
from batchmerge.resources.errors import CommitFailed, TerminalError, Unavailable
from batchmerge.sql import render

from batchmerge_duckdb.kind import KIND
from batchmerge_duckdb.spec import DuckDbConnection


@contextmanager
def transaction(connection: DuckDbConnection, where: str, keep: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    """All that is done inside becomes visible at its end, or nothing of it. Without `keep` nothing does.

    Raises:
        Unavailable: another process had the file open all the time. CommitFailed: another writer was faster.
    """
    db = _open(connection, where) if keep or connection.file.exists() else duckdb.connect()
    try:
        db.execute("SET TimeZone = 'UTC'").begin()
        yield db
        db.commit() if keep else db.rollback()
    except (duckdb.TransactionException, duckdb.ConstraintException) as conflict:
        raise CommitFailed("another run was faster", where=where, remedy="plan again") from conflict
    except duckdb.Error as problem:
        raise TerminalError(f"DuckDB refuses: {problem}", where=where, remedy="see DuckDB's message") from problem
    finally:
        db.close()


def _open(connection: DuckDbConnection, where: str) -> duckdb.DuckDBPyConnection:
    end = time.monotonic() + connection.patience_seconds
    while True:
        try:
            connection.file.parent.mkdir(parents=True, exist_ok=True)
            return duckdb.connect(connection.file)
        # The second one: another thread of this process waits for the file, too.
        except (duckdb.IOException, duckdb.BinderException, OSError) as locked:
            if time.monotonic() > end:
                what = f"{connection.file} cannot be opened: {locked}"
                remedy = "close it in the other process, or correct the file's permissions"
                raise Unavailable(what, where=where, remedy=remedy) from locked
            time.sleep(0.2)


def run(db: duckdb.DuckDBPyConnection, template: str, table: str, **arguments: object) -> duckdb.DuckDBPyConnection:
    """The answer to a statement about a table."""
    return db.execute(render(KIND.dialect, template, table=table.split("."), **arguments))
