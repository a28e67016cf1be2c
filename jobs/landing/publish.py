"""Publishes files that were written as a landed batch, with the state after it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from jobs.batch import Batch, CommittedState, LandedBatch, Moves
from jobs.failpoints import failpoint
from jobs.iceberg.append import Append
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.history import state_properties
from jobs.landed_properties import landed_to_properties
from jobs.landing.new_tables import new_table_properties
from jobs.landing.registry_schemas import schema_id_properties
from jobs.landing.unknown_fields import unknown_field_properties
from jobs.planning.plan import TopicState
from jobs.spec.value import Value
from jobs.watermark import Watermark

if TYPE_CHECKING:
    from jobs.landing.ranges import LandedRanges

_LOG = logging.getLogger("batchmerge")


@dataclass(frozen=True)
class ReadBatch:
    """A batch whose records were read: they are in files that no table has yet.

    Attributes:
        append: commits the files.
        landed: the batch with what was found in its records; it has no snapshot yet.
        properties: the table's properties that change with it.
    """

    append: Append
    landed: LandedBatch
    properties: Mapping[str, str]

    @cached_property
    def state(self) -> CommittedState:
        """The committed state once it is published."""
        return CommittedState.after(self.landed)

    @property
    def changes_reading(self) -> bool:
        """Whether later records may be read otherwise once it is published, or other batches come before them: it
        brings columns, tables or ids of schemas, or changes of keys whose rows are looked for."""
        return bool(self.properties or self.landed.new_columns) or self.landed.moves != Moves()


def read_batch(
    append: Append,
    value: Value,
    batch: Batch,
    committed: CommittedState | None,
    written: LandedRanges,
    topics: TopicState,
) -> ReadBatch:
    """The batch with these files and findings."""
    before, report = committed.watermark if committed else Watermark(), written.report
    watermark = before.advance(batch.ranges, report.newest, topics.stable, topics.asked_at)
    watermark = watermark.truncated(report.truncated_below)
    unknown = report.fields.counts
    properties = {
        **unknown_field_properties(append, value, unknown),
        **new_table_properties(append, report, batch.number),
        **schema_id_properties(append, report.schema_ids),
    }
    landed = LandedBatch(batch, written.counts, watermark, 0, unknown, written.new_columns, report.moves)
    return ReadBatch(append, landed, properties)


def publish_read(read: ReadBatch, summary: dict[str, str]) -> LandedBatch:
    """Publishes a batch that was read as one snapshot, with the state after it.

    Args:
        summary: further snapshot properties (run id).

    Raises:
        CommitFailed: another run landed meanwhile.
    """
    landed = publish_batch(read.append, read.landed, summary, read.properties)
    counts = landed.counts
    _LOG.info(
        "landed %s: read %d, landed %d, quarantined %d, skipped %d, filtered %d, gaps %d",
        landed.batch,
        counts.read,
        counts.landed,
        counts.quarantined,
        counts.skipped,
        counts.filtered,
        counts.gaps,
    )
    return landed


def publish_batch(
    append: Append | Attempt,
    landed: LandedBatch,
    summary: dict[str, str],
    mirrored: Mapping[str, str] | None = None,
) -> LandedBatch:
    """Publishes the written files as this batch; returns it with its snapshot.

    Args:
        mirrored: further table properties.
    """
    after = CommittedState.after(landed)
    state = {**state_properties(after, append.target), **(mirrored or {})}
    snapshot = append.publish_append({**landed_to_properties(landed, after), **summary}, state)
    failpoint("land.published")
    return replace(landed, snapshot_id=snapshot)
