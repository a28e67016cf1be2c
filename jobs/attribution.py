"""Errors say which batches they are about: in the log, in Dagster's metadata, in alerts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from jobs.batch import Batch
from resources.errors import BatchmergeError


@contextmanager
def about(batches: Sequence[Batch]) -> Iterator[None]:
    """What goes wrong here is about these batches, ascending, unless it says so itself."""
    first, last = batches[0].number, batches[-1].number
    try:
        yield
    except BatchmergeError as problem:
        problem.facts.setdefault("batch", str(first) if first == last else f"{first} to {last}")
        raise
