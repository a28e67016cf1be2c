"""Dagster's SQLite databases, opened once per process.

Dagster itself opens a database file for each statement and closes it again. At the last close SQLite moves its
write-ahead log into the file and syncs both: 570 times in a run of one table. An open database is synced once per
commit, keeps the statements that SQLAlchemy has compiled, and needs no look at all migrations to know its version.

Events of runs are synced now and then only: after a power failure a run's last events may be missing, as if the run had
died a moment earlier. Runs themselves, pauses and schedules are synced with each commit.
"""

from __future__ import annotations

import atexit
from collections import OrderedDict
from sqlite3 import Connection
from threading import Lock
from typing import Any

from alembic.config import Config
from alembic.script import ScriptDirectory
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.pool import QueuePool

_STORAGES: tuple[Any, ...] = (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage)
# Open databases at the most: each run has a database of its own.
_MOST_OPEN = 8
# Engines by address, the one that was used last at the end.
_open = OrderedDict[str, Engine]()
_lock = Lock()
_migrations: dict[str | None, ScriptDirectory] = {}
_read_migrations = ScriptDirectory.from_config


def keep_databases_open() -> None:
    """Keeps the databases of this process open from now on, until `close_databases` or its end."""
    ScriptDirectory.from_config = _known_migrations  # type: ignore[method-assign]
    for storage in _STORAGES:
        storage.create_engine = _known_engine
    _STORAGES[0].create_engine = _engine_of_events
    atexit.register(close_databases)


def close_databases() -> None:
    """For use before a fork, and before `os._exit`. Databases are opened again when needed."""
    with _lock:
        while _open:
            Engine.dispose(_open.popitem()[1])


def _known_engine(address: str, connect_args: dict[str, Any] | None = None, **_pool: Any) -> Engine:
    """The engine of a database. One connection stays open; those of further threads come and go."""
    with _lock:
        engine = _open.pop(address, None)
        if engine is None:
            engine = create_engine(
                address, connect_args=connect_args or {}, poolclass=QueuePool, pool_size=1, max_overflow=-1
            )
            engine.dispose = _stay  # type: ignore[method-assign]  # Dagster asks for it after each statement
        _open[address] = engine
        while len(_open) > _MOST_OPEN:
            Engine.dispose(_open.popitem(last=False)[1])
    return engine


def _engine_of_events(address: str, **given: Any) -> Engine:
    engine = _known_engine(address, **given)
    if not event.contains(engine, "connect", _sync_now_and_then):
        event.listen(engine, "connect", _sync_now_and_then)
    return engine


def _sync_now_and_then(connection: Connection, _record: object) -> None:
    for setting in ("journal_mode=WAL", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {setting}").close()


def _stay(close: bool = True) -> None:
    del close


def _known_migrations(config: Config) -> ScriptDirectory:
    where = config.get_main_option("script_location")
    if where not in _migrations:
        _migrations[where] = _read_migrations(config)
    return _migrations[where]
