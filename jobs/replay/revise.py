"""Records that are read once more are landed as a batch of their own, which revises earlier ones.

A replay from Kafka and a retry of dead letters differ only in where records are read from. What they read lands as
rows, dead letters and marks of records that are left out, each at the place (batch, i) that its record always had, and
with the number of the new batch as its `revision`. Nothing that is landed is ever rewritten. The new batch is the next
one of the lineage; its empty ranges move no offset. Every table merges it like any other batch (`jobs.protocol`): for
the keys that any reading of its records names, the newest change of all that is landed is applied.

Of a record the newest reading counts that could be read: one that a stricter file cannot read any more is a dead letter
from then on, and what it said before stays in the tables.
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
    """What the tables have got of what is landed.

    Attributes:
        merged: by the table's name; None: it had everything.
        failed: tables that could not be merged; the next run brings them what they lack.
    """

    merged: Mapping[str, MergedBatches | None] = field(default_factory=dict)
    failed: Mapping[str, BatchmergeError] = field(default_factory=dict)


def merge_tables(pipeline: Pipeline) -> Applied:
    """Brings every table what is landed; one that fails does not keep the others from it."""
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
    """What several pipelines got."""
    found = list(done)
    merged = {table: one for applied in found for table, one in applied.merged.items()}
    return Applied(merged, {table: problem for applied in found for table, problem in applied.failed.items()})
