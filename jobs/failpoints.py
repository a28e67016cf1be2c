"""Named boundaries between two outside effects, where tests kill or stop the real process.

`BATCHMERGE_FAILPOINT=<name>[:<n>][=<action>]` acts when the boundary of that name is reached for the n-th time
(default 1): `kill` (SIGKILL, the default) or `stop` (SIGSTOP, until somebody continues the process). Without the
variable, reaching a boundary does nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial

VARIABLE = "BATCHMERGE_FAILPOINT"

# Every boundary of the protocol, in its order. The crash suite goes through all of them. Kinds of destination that have
# several outside effects in a merge have more (`jobs.destinations.kind.Kind.failpoints`).
LANDING = ("land.planned", "land.begun", "land.written", "land.published")
# Where records bring new columns, before the batch is written by them (jobs/landing/new_columns.py).
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
# Instead of `merge.published` where all tables are committed at once (jobs/protocol.py).
TOGETHER = ("together.written", "together.published")
# Sending dead letters to their topic (jobs/dead_letters/topic.py).
DEAD_LETTERS = ("dead-letters.written", "dead-letters.sent")
# Landing what was read once more, then its merges (jobs/replay/revise.py).
REVISION = ("land.written", "land.published", "merge.written", "merge.published")
# Taking over another pipeline's tables (jobs/take_over.py); the second one where a kind does it in two steps.
TAKE_OVER = ("take-over.landed", "take-over.given", "take-over.table")
# Upkeep of an Iceberg table (jobs/maintenance): batches forgotten and their rows still there, a compaction, and each
# task when it is done; of any other table only `clean_up`.
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
# Instead of those of EVENTS where the control topic is off.
GROUP = "events.group"

_ACTIONS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_reached: Counter[str] = Counter()


def failpoint(name: str) -> None:
    """Says that the process stands at this boundary."""
    action = _due(name)
    if action:
        # To this very thread: a signal to the process may stop it only after this one has gone on.
        signal.pthread_kill(threading.get_ident(), action)


def failpoint_of_task(name: str) -> Callable[[], None]:
    """What a task of Spark calls when it stands at this boundary: the run that has started it dies, the task goes on.

    Works only where both are on one machine.
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
