"""What maintenance reports of many tables."""

from __future__ import annotations

from jobs.maintenance.report import Done, combined
from resources.errors import TerminalError


def test_tasks_of_many_tables_are_reported_once_and_failures_by_themselves() -> None:
    failed = Done("compaction", "c", problem=TerminalError("no"))
    done = [
        Done("compaction", "a", {"files": 2}, seconds=1.5),
        Done("compaction", "b", {"files": 3}, seconds=1),
        failed,
    ]
    assert combined(done) == [Done("compaction", "", {"files": 5}, seconds=2.5), failed]
