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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jobs.merged import MergedBatches
from jobs.pipeline import Pipeline
from jobs.protocol import merge, merge_together
from resources.errors import BatchmergeError


@dataclass(frozen=True)
class Applied:
    """The results of merging the tables.

    Attributes:
        merged: by table name; None: the table had everything.
        failed: tables that could not be merged; the next run merges what they lack.
    """

    merged: Mapping[str, MergedBatches | None] = field(default_factory=dict)
    failed: Mapping[str, BatchmergeError] = field(default_factory=dict)


def merge_tables(pipeline: Pipeline) -> Applied:
    """Merges what is landed into every table; a table that fails does not stop the others."""
    if pipeline.spec.commit == "together":
        return Applied({done.destination.name: done.merged for done in merge_together(pipeline)})
    merged, failed = {}, {}
    pipeline.resolve()
    for destination in pipeline.destinations():
        try:
            merged[destination.name] = merge(pipeline, destination)
        except BatchmergeError as problem:
            failed[destination.name] = problem
    return Applied(merged, failed)


def combined(done: Iterable[Applied]) -> Applied:
    """The results of several pipelines together."""
    found = list(done)
    merged = {table: one for applied in found for table, one in applied.merged.items()}
    return Applied(merged, {table: problem for applied in found for table, problem in applied.failed.items()})
