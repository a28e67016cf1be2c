"""Holds processes back: they and their children run for a share of each twentieth of a second, and sleep otherwise.

So that workers of a cluster have less of a machine than they would take, and more workers are more.

`python -m tests.kit.throttle PID SHARE OF TURN`: the share in percent, until it is ended. Of several throttles each has
its own turn, so that their processes do not run at the same time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

from tests.kit.processes import stop

# Seconds of a period, of which a process runs for its share.
_PERIOD = 0.05
# Periods between two looks for new children.
_LOOK_EVERY = 20


@contextmanager
def throttled(pids: Sequence[int], share: int) -> Iterator[None]:
    """Within it each of these processes, with its children, gets this share of a core's time, in percent."""
    command = [sys.executable, "-m", "tests.kit.throttle"]
    throttles = [
        subprocess.Popen([*command, str(pid), str(share), str(len(pids)), str(turn)]) for turn, pid in enumerate(pids)
    ]
    try:
        yield
    finally:
        for one in throttles:
            stop(one)


def main(pid: int, share: int, of: int, turn: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    held, periods = dict[int, int](), 0
    try:
        while psutil.pid_exists(pid):
            if periods % _LOOK_EVERY == 0:
                _look(pid, held)
            periods += 1
            time.sleep((turn / of - time.monotonic() / _PERIOD) % 1 * _PERIOD)
            _send(held, signal.SIGCONT)
            time.sleep(share / 100 * _PERIOD)
            _send(held, signal.SIGSTOP)
    finally:
        _look(pid, held)
        _send(held, signal.SIGCONT)


def _look(pid: int, held: dict[int, int]) -> None:
    """Opens a handle of each process of this family that has none, and closes those of processes that have ended.

    Handles, because a signal by number costs a look at whose number it is now.
    """
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        there = {one.pid for one in (root, *root.children(recursive=True))}
        for gone in held.keys() - there:
            os.close(held.pop(gone))
        for new in there - held.keys():
            with suppress(ProcessLookupError):
                held[new] = os.pidfd_open(new)


def _send(held: dict[int, int], what: signal.Signals) -> None:
    for pid, handle in list(held.items()):
        try:
            signal.pidfd_send_signal(handle, what)
        except ProcessLookupError:  # Another process may get its number.
            os.close(held.pop(pid))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
