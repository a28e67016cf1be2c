"""A time limit for work that may hang in an external system."""

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
_END: ContextVar[tuple[threading.Event, ...]] = ContextVar("batchmerge_end", default=())
# Seconds between two checks of progress and of a request to end.
LOOK = 0.2


class _Work(threading.Thread, Generic[T]):
    """A daemon thread that keeps the result."""

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
    """Work with a time limit in this context ends with a KeyboardInterrupt once the event is set, since only the main
    thread of a process gets real interrupts."""
    token = _END.set((*_END.get(), event))
    try:
        yield
    finally:
        _END.reset(token)


def raise_if_to_end() -> None:
    """Raises KeyboardInterrupt if an event of `ending_with` is set."""
    if any(end.is_set() for end in _END.get()):
        raise KeyboardInterrupt


def with_timeout(
    seconds: float,
    where: str,
    work: Callable[[], T],
    on_timeout: Callable[[], None] | None = None,
    done: Sized = (),
) -> T:
    """The result of `work`, or a transient error once the time is over.

    Abandoned work may continue in its thread for a while. That is safe, since its commits are conditional.

    Args:
        on_timeout: stops the work in external systems; also called when this thread is interrupted.
        done: what the work has finished so far; the time starts again with each new item.

    Raises:
        TimeLimitReached: no result in time; its facts describe the current work.
        KeyboardInterrupt: the event of `ending_with` was set.
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
            **{"seconds": seconds, **facts},
        )
    if thread.problem is not None:
        raise thread.problem
    return thread.answer  # type: ignore[return-value]  # None only where T allows it


def _join(thread: threading.Thread, seconds: float, done: Sized) -> None:
    """Waits for the thread's end, at most `seconds` after the start and after each new item of `done`."""
    seen, latest = len(done), time.monotonic() + seconds
    while thread.is_alive() and (left := latest - time.monotonic()) > 0:
        thread.join(min(left, LOOK))
        if thread.is_alive():
            raise_if_to_end()
        if len(done) != seen:
            seen, latest = len(done), time.monotonic() + seconds


def _quietly(on_timeout: Callable[[], None] | None) -> None:
    """Calls `on_timeout` with a short limit, since its system may be the one that hangs; ignores its errors."""
    if on_timeout is None:
        return
    thread = _Work(on_timeout)
    thread.start()
    thread.join(5)
