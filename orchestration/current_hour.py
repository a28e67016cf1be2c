"""The partition of a plain run: the hour in which it is requested. It may begin later."""

from __future__ import annotations

from datetime import datetime

import dagster as dg

from orchestration.names import ASKED_AT_TAG


def hour_of(hours: dg.PartitionsDefinition, asked_at: datetime) -> tuple[str | None, dict[str, str]]:
    """The partition, and tags from which the run's steps know when it was requested."""
    with dg.partition_loading_context(effective_dt=asked_at):
        return hours.get_last_partition_key(), {ASKED_AT_TAG: asked_at.isoformat()}
