"""Failpoints in this process: something happens at a boundary, on any thread, without a process that has to die."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from jobs import failpoints


class Died(BaseException):
    """Stands in for the death of the process: nobody handles it."""


@contextmanager
def at_failpoints(act: Callable[[str], None]) -> Iterator[None]:
    """Within it `act` is called with the name of each boundary that is reached."""
    real = failpoints.failpoint
    with pytest.MonkeyPatch.context() as patch:
        for module in list(sys.modules.values()):
            if getattr(module, "failpoint", None) is real:
                patch.setattr(module, "failpoint", act)
        yield


@contextmanager
def dying_at(point: str) -> Iterator[None]:
    """Within it the work dies at this boundary."""

    def act(name: str) -> None:
        if name == point:
            raise Died(name)

    with at_failpoints(act), pytest.raises(Died):
        yield


def die_at_each(work: Callable[[], object]) -> list[str]:
    """Does the work again and again; each time it dies at the first boundary where it has not died yet.

    Returns:
        The boundaries; after the last of them it was done.
    """
    died: list[str] = []

    def act(name: str) -> None:
        # Events follow the commit, on a thread of their own, whose death nobody would see.
        if name not in died and not name.startswith("events."):
            died.append(name)
            raise Died(name)

    with at_failpoints(act):
        while True:
            try:
                work()
            except Died:
                _end_members()
                continue
            return died


def _end_members() -> None:
    """A killed process has no threads that go on with other members: these (`jobs.members.side_by_side`) are waited
    for."""
    for thread in threading.enumerate():
        if thread.name.startswith("batchmerge-member"):
            thread.join()
