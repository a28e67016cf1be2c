"""Records that are read again are landed as a batch of their own, which revises earlier ones.

A replay from Kafka and a retry of dead letters differ only in their source. Both land rows, dead letters and marks of
filtered records, each at the original place (batch, i) of its record, with the number of the new batch as `revision`.
Nothing that is landed is ever rewritten. The new batch is the next one of the lineage; its empty ranges move no offset.
Every table merges it like any other batch (`jobs.protocol`): for each key that any reading of its records names, the
newest of all landed changes is applied.

A record's newest reading without an error counts: if a stricter file can no longer read a record, it becomes a dead
letter, but its earlier reading remains in the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from jobs.destinations.base import Destination
from jobs.merged import MergedBatches
from jobs.pipeline import Pipeline
from jobs.protocol import merge, merge_together
from resources.errors import BatchmergeError


@dataclass(frozen=True)
class Applied:
    """The results of a merge or replay of several tables.

    Attributes:
        merged: by table name; None: there was nothing to do for the table.
        failed: by table name its error; the next run merges what a table lacks.
    """

    merged: Mapping[str, MergedBatches | None] = field(default_factory=dict)
    failed: Mapping[str, BatchmergeError] = field(default_factory=dict)


def merge_tables(pipeline: Pipeline) -> Applied:
    """Merges what is landed into every table; a table that fails does not stop the others."""
    if pipeline.spec.commit == "together":
        return Applied({done.destination.name: done.merged for done in merge_together(pipeline)})
    pipeline.resolve()
    return applied(pipeline.destinations(), partial(merge, pipeline))


def applied(destinations: Iterable[Destination], work: Callable[[Destination], MergedBatches | None]) -> Applied:
    """The results of this work for each table; a table that fails does not stop the others."""
    merged, failed = {}, {}
    for destination in destinations:
        try:
            merged[destination.name] = work(destination)
        except BatchmergeError as problem:
            failed[destination.name] = problem
    return Applied(merged, failed)


def combined(done: Iterable[Applied]) -> Applied:
    """The results of several pipelines together."""
    found = list(done)
    merged = {table: one for part in found for table, one in part.merged.items()}
    return Applied(merged, {table: problem for part in found for table, problem in part.failed.items()})
