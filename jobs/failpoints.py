"""Named boundaries between two outside effects, at which tests kill or stop the real process.

`BATCHMERGE_FAILPOINT=<name>[:<n>][=<action>]` acts when the boundary of that name is reached for the n-th time
(default 1): `kill` (SIGKILL, the default) or `stop` (SIGSTOP, until a SIGCONT). Without the variable, a boundary does
nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial

VARIABLE = "BATCHMERGE_FAILPOINT"

# Every boundary of the protocol, in order. The crash tests cover all of them. Kinds of destination with several outside
# effects in a merge have more (`jobs.destinations.kind.Kind.failpoints`).
LANDING = ("land.planned", "land.begun", "land.written", "land.published")
# When records bring new columns, before the batch is written with them (jobs/landing/new_columns.py).
NEW_COLUMNS = "land.evolved"
MERGE = ("merge.planned", "merge.begun", "merge.written", "merge.published")
EVENTS = (
    "events.request.written",
    "events.request.sent",
    "events.ready.written",
    "events.ready.sent",
    "events.table.written",
    "events.table.sent",
    "events.complete.written",
    "events.complete.sent",
)
# Instead of `merge.published` if all tables are committed at once (jobs/protocol.py).
TOGETHER = ("together.written", "together.published")
# Sending dead letters to their topic (jobs/dead_letters/topic.py).
DEAD_LETTERS = ("dead-letters.written", "dead-letters.sent")
# Landing records that were read again, then its merges (jobs/replay/revise.py).
REVISION = ("land.written", "land.published", "merge.written", "merge.published")
# Taking over another pipeline's tables (jobs/resets/take_over.py); the second one only in kinds that do it in two
# steps.
TAKE_OVER = ("take-over.landed", "take-over.given", "take-over.table")
# Maintenance of an Iceberg table (jobs/maintenance): batches removed but not yet their rows, a compaction, and the end
# of each task; for other tables only `clean_up`.
MAINTENANCE = (
    "maintenance.forgotten",
    "maintenance.landed",
    "maintenance.branches",
    "maintenance.begun",
    "maintenance.written",
    "maintenance.published",
    "maintenance.compaction",
    "maintenance.manifests",
    "maintenance.snapshots",
    "maintenance.orphans",
    "maintenance.clean_up",
)
# Instead of those of EVENTS if the control topic is off.
GROUP = "events.group"

_ACTIONS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_reached: Counter[str] = Counter()


def failpoint(name: str) -> None:
    """Marks a boundary; acts if `BATCHMERGE_FAILPOINT` names it."""
    action = _due(name)
    if action:
        # To this thread: a signal to the process may take effect only after this thread has continued.
        signal.pthread_kill(threading.get_ident(), action)


def failpoint_of_task(name: str) -> Callable[[], None]:
    """A function for a Spark task to call at this boundary: it kills the run that started the task, not the task.

    Works only if both are on one machine.
    """
    action = _due(name)
    return partial(os.kill, os.getpid(), action) if action else _nothing


def _due(name: str) -> signal.Signals | None:
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return None
    point, _, action = wanted.partition("=")
    point, _, turn = point.partition(":")
    if point != name:
        return None
    _reached[name] += 1
    return _ACTIONS[action or "kill"] if _reached[name] == int(turn or 1) else None


def _nothing() -> None:
    pass
