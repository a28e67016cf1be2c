"""A time limit on work that may hang in somebody else's server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Generic, TypeVar

from jobs.batch_error_context import batches_under_way
from resources.errors import TimeLimitReached

T = TypeVar("T")
_END: ContextVar[threading.Event | None] = ContextVar("batchmerge_end", default=None)
# Seconds between two looks at what is done, and whether the work is to end.
LOOK = 0.2


class _Work(threading.Thread, Generic[T]):
    """Runs in a thread that cannot keep the process alive, and keeps the answer."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(daemon=True, name="batchmerge-step")
        self._work, self._context = work, copy_context()
        self.answer: T | None = None
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            self.answer = self._context.run(self._work)
        except BaseException as problem:
            self.problem = problem


@contextmanager
def ending_with(event: threading.Event) -> Iterator[None]:
    """Work with a time limit that is done here ends as by an interrupt once the event is set: only the main thread of a
    process gets interrupts."""
    token = _END.set(event)
    try:
        yield
    finally:
        _END.reset(token)


def raise_if_to_end() -> None:
    """Raises KeyboardInterrupt once the event is set that what is done here ends with."""
    if (end := _END.get()) and end.is_set():
        raise KeyboardInterrupt


def with_timeout(
    seconds: float,
    where: str,
    work: Callable[[], T],
    on_timeout: Callable[[], None] | None = None,
    done: Sized = (),
) -> T:
    """The answer of `work`, or a transient failure once the time is over.

    Work that was given up may go on in its thread for a while. That is safe: what it commits is conditional.

    Args:
        on_timeout: stops what the work has under way elsewhere; also called when this thread is interrupted.
        done: what the work has done so far; the time begins again with each further one.

    Raises:
        TimeLimitReached: no answer in time; its facts say what was under way.
        KeyboardInterrupt: it was to end (`ending_with`).
    """
    raise_if_to_end()
    with batches_under_way() as under_way:
        thread = _Work(work)
    thread.start()
    try:
        _join(thread, seconds, done)
    except BaseException:  # Dagster cancels a step by an interrupt: stop before the commit if we still can
        _quietly(on_timeout)
        raise
    if thread.is_alive():
        facts = dict(under_way)
        _quietly(on_timeout)
        raise TimeLimitReached(
            f"no answer within the time limit of {seconds:g} s; given up",
            where=where,
            remedy="look at that system; or raise `time_limit_seconds` if the work is that large",
            **facts,
        )
    if thread.problem is not None:
        raise thread.problem
    return thread.answer  # type: ignore[return-value]  # None only where T allows it


def _join(thread: threading.Thread, seconds: float, done: Sized) -> None:
    """Waits for its end; so long, and again so long for each further thing that is done."""
    seen, latest = len(done), time.monotonic() + seconds
    while thread.is_alive() and (left := latest - time.monotonic()) > 0:
        thread.join(min(left, LOOK))
        if thread.is_alive():
            raise_if_to_end()
        if len(done) != seen:
            seen, latest = len(done), time.monotonic() + seconds


def _quietly(on_timeout: Callable[[], None] | None) -> None:
    """`on_timeout` on a system that may be the one that hangs: it gets a moment, and its own errors change nothing."""
    if on_timeout is None:
        return
    thread = _Work(on_timeout)
    thread.start()
    thread.join(5)
