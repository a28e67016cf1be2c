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
# Instead of those of EVENTS where the control topic is off.
GROUP = "events.group"
ALL = (*LANDING, *MERGE, *EVENTS)

_ACTIONS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_reached: Counter[str] = Counter()


def failpoint(name: str) -> None:
    """Says that the process stands at this boundary."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    point, _, action = wanted.partition("=")
    point, _, turn = point.partition(":")
    if point != name:
        return
    _reached[name] += 1
    if _reached[name] == int(turn or 1):
        # To this very thread: a signal to the process may stop it only after this one has gone on.
        signal.pthread_kill(threading.get_ident(), _ACTIONS[action or "kill"])
