"""Dagster's SQLite databases stay open while a process works with them, and are whole when it has closed them."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.kit.flow import ROOT

# Prints how often a database was opened, for one event and for twenty; how those of events and of runs are synced (1:
# now and then, 2: with each commit); then how many files of them are open.
_SCRIPT = """
import os, sys
import dagster as dg
from dagster._core.utils import make_new_run_id
from orchestration.databases import close_databases, keep_databases_open

opened = []
sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "sqlite3.connect" else None)
keep_databases_open()
with dg.DagsterInstance.from_config(sys.argv[1]) as instance:
    run = instance.create_run_for_job(dg.GraphDefinition("job").to_job(), run_id=make_new_run_id())
    for events in (1, 20):
        before = len(opened)
        for n in range(events):
            instance.report_engine_event(f"event {n}", run)
        print(len(opened) - before)
    assert len(instance.all_logs(run.run_id)) >= 21
    events, runs = instance.event_log_storage, instance.run_storage
    for connect in (lambda: events.run_connection(run.run_id), events.index_connection, runs.connect):
        with connect() as connection:
            print(connection.exec_driver_sql("PRAGMA synchronous").scalar())
def files():
    return [path for n in os.listdir("/proc/self/fd") if ".db" in (path := os.path.realpath(f"/proc/self/fd/{n}"))]
assert files()
close_databases()
print(len(files()))
"""


def test_a_database_is_opened_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    first, twenty, *synced, open_after = map(int, done.stdout.split())
    assert first <= 2
    assert twenty == 0
    assert synced == [1, 1, 2]
    assert open_after == 0, "a process that forks must have none open"
    assert [name for _, _, names in os.walk(tmp_path) for name in names if name.endswith(("-wal", "-shm"))] == []
    (of_run,) = (path for path in tmp_path.glob("history/runs/*.db") if path.name != "index.db")
    with sqlite3.connect(of_run) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
