"""A time limit for work that may hang in an external system."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sized
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TypeVar

from jobs.batch_error_context import batches_under_way
from resources.errors import TimeLimitReached

T = TypeVar("T")
_END: ContextVar[tuple[threading.Event, ...]] = ContextVar("batchmerge_end", default=())
# Seconds between two checks of progress and of a request to end.
LOOK = 0.2


def in_background(work: Callable[[], T]) -> Future[T]:
    """The result of the work, which a daemon thread does: nothing waits for it when the process ends."""
    result, context = Future[T](), copy_context()

    def run() -> None:
        try:
            result.set_result(context.run(work))
        except BaseException as problem:
            result.set_exception(problem)

    threading.Thread(target=run, daemon=True, name="batchmerge-step").start()
    return result


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
        result = in_background(work)
    try:
        _wait(result, seconds, done)
    except BaseException:  # Dagster cancels a step by an interrupt: stop before the commit if we still can
        _quietly(on_timeout)
        raise
    if not result.done():
        facts = dict(under_way)
        _quietly(on_timeout)
        raise TimeLimitReached(
            f"no answer within the time limit of {seconds:g} s; given up",
            where=where,
            remedy="check that system; or raise `time_limit_seconds` if the work needs more time",
            **{"seconds": seconds, **facts},
        )
    return result.result()


def _wait(result: Future[T], seconds: float, done: Sized) -> None:
    """Waits for the result, at most `seconds` after the start and after each new item of `done`."""
    seen, latest = len(done), time.monotonic() + seconds
    while not result.done() and (left := latest - time.monotonic()) > 0:
        wait([result], min(left, LOOK))
        if not result.done():
            raise_if_to_end()
        if len(done) != seen:
            seen, latest = len(done), time.monotonic() + seconds


def _quietly(on_timeout: Callable[[], None] | None) -> None:
    """Calls `on_timeout` with a short limit, since its system may be the one that hangs; ignores its errors."""
    if on_timeout:
        wait([in_background(on_timeout)], 5)
