"""Adds the batches to errors about them, for the log, Dagster's metadata and alerts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from jobs.batch import Batch
from resources.errors import BatchmergeError

_UNDER_WAY: ContextVar[dict[str, object] | None] = ContextVar("batchmerge_under_way", default=None)


@contextmanager
def batch_error_context(batches: Sequence[Batch]) -> Iterator[None]:
    """Errors in this context get these batches (ascending), unless they name batches themselves."""
    first, last = batches[0].number, batches[-1].number
    named = str(first) if first == last else f"{first} to {last}"
    under_way = _UNDER_WAY.get()
    if under_way is not None:
        under_way["batch"] = named
    try:
        yield
    except BatchmergeError as problem:
        problem.facts.setdefault("batch", named)
        raise
    finally:
        if under_way is not None:
            under_way.clear()


@contextmanager
def batches_under_way() -> Iterator[Mapping[str, object]]:
    """The facts of the current work in this context and its copies, for errors about work that hangs."""
    facts: dict[str, object] = {}
    token = _UNDER_WAY.set(facts)
    try:
        yield facts
    finally:
        _UNDER_WAY.reset(token)
