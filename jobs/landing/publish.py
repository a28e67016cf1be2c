"""Publishes files that were written as a landed batch, with the state after it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.batch import Batch, CommittedState, LandedBatch
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


def publish_landed(
    append: Append,
    value: Value,
    batch: Batch,
    committed: CommittedState | None,
    written: LandedRanges,
    topics: TopicState,
    summary: dict[str, str],
) -> LandedBatch:
    """Publishes the written files as this batch, with the state after it."""
    before, counts = committed.watermark if committed else Watermark(), written.counts
    watermark = before.advance(batch.ranges, written.report.newest, topics.stable, topics.asked_at)
    watermark = watermark.truncated(written.report.truncated_below)
    unknown = written.report.fields.counts
    properties = {
        **unknown_field_properties(append, value, unknown),
        **new_table_properties(append, written.report, batch.number),
        **schema_id_properties(append, written.report.schema_ids),
    }
    made = LandedBatch(batch, counts, watermark, 0, unknown, written.new_columns, written.report.moves)
    landed = publish_batch(append, made, summary, properties)
    _LOG.info(
        "landed %s: read %d, landed %d, quarantined %d, skipped %d, filtered %d, gaps %d",
        batch,
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
