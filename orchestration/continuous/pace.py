"""When a continuous step works: at every interval, and whenever another step rings its bell."""

from __future__ import annotations

import hashlib
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from orchestration.socket_wait import is_readable

# Seconds between two checks whether the step is over, however long the interval is.
_LOOK = 5.0


class Bell:
    """Wakes a step when another step of the same run rings, which is another process of this machine: by a datagram,
    which may get lost.

    Only Linux has socket names that leave no file. On other systems nobody rings, and only the interval counts.
    """

    def __init__(self, run_id: str, step: str) -> None:
        self._socket: socket.socket | None = None
        if sys.platform == "linux":
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self._socket.bind(_address(run_id, step))

    def close(self) -> None:
        if self._socket:
            self._socket.close()

    def wait(self, seconds: float) -> bool:
        """Waits at most this long; whether the bell was rung."""
        if self._socket is None:
            time.sleep(seconds)
            return False
        rung = is_readable(self._socket, seconds)
        with suppress(BlockingIOError):
            while rung:
                self._socket.recv(1)
        return rung


def ring(run_id: str, steps: Sequence[str]) -> None:
    """Wakes these steps of the run, if they are there."""
    if sys.platform != "linux":
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as ringing:
        for step in steps:
            with suppress(OSError):  # it has not begun, or has ended, or was rung for already
                ringing.sendto(b"!", _address(run_id, step))


def ticks(interval: float, bell: Bell, is_over: Callable[[], bool]) -> Iterator[None]:
    """A tick at once, then one every interval and at each ring, until the step is over. Longer work delays the next.

    After a ring the next tick comes at most an interval later, however often it has rung before.
    """
    due = time.monotonic()
    while not is_over():
        began = time.monotonic()
        yield
        due = max(min(due, began) + interval, time.monotonic())
        while (left := due - time.monotonic()) > 0:
            if bell.wait(min(left, _LOOK)):
                break
            if left > _LOOK and is_over():
                return


def _address(run_id: str, step: str) -> str:
    # The kernel takes 107 characters, and names of steps may be longer.
    return f"\0batchmerge/{run_id[:36]}/{hashlib.sha256(step.encode()).hexdigest()[:32]}"
