"""Reports of rows that tables refuse: counts, log lines, dead letters as `dead-letters list` shows them, commands."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jobs.batch import MergeCounts
from jobs.dead_letters.dead_letter import DeadLetter, DeadLetterGroup
from jobs.spec.pipeline import PipelineSpec

_LOG = logging.getLogger("batchmerge")
KIND = "refused"


def with_refused(counts: MergeCounts, spec: PipelineSpec, refused: int, out_of_range: int) -> MergeCounts:
    """The counts with refused rows, under the policy's name (quarantined or skipped), and adjusted rows."""
    skips = spec.on_bad_record == "skip"
    return replace(counts, out_of_range=out_of_range, **{"skipped" if skips else "refused": refused})


def log_refused(pipeline: str, where: str, counts: MergeCounts) -> None:
    """Logs how many rows a merge or a replay refused or adjusted."""
    if counts.out_of_range:
        _LOG.info("%s: %d rows had a value out of range (`out_of_range`)", where, counts.out_of_range)
    if counts.skipped:
        _LOG.warning("%s cannot store %d rows: they are skipped (`on_bad_record: skip`)", where, counts.skipped)
    if counts.refused:
        _LOG.warning("%s refuses %d rows: see `%s`", where, counts.refused, list_command(pipeline))


def list_command(pipeline: str) -> str:
    """The command that shows refused rows and their problems."""
    return f"batchmerge dead-letters list {pipeline}"


def retry_command(pipeline: str) -> str:
    """The command that writes refused rows once the table's options are corrected."""
    return f"batchmerge dead-letters retry {pipeline}"


def as_letter(row: Mapping[str, Any], table: str, stage: str) -> DeadLetter:
    """A row of a side table as a dead letter; `stage` is the destination's name."""
    wanted = f" ({row['declared']} to {row['wanted']})" if row["wanted"] else ""
    value, key = row.get("row"), row.get("key")
    return DeadLetter(
        table=table,
        topic=row["topic"],
        partition=int(row["partition"]),
        offset=int(row["offset"]),
        timestamp=None,
        batch=int(row["batch"]),
        i=None,
        stage=stage,
        kind=KIND,
        message=f"{_of_column(row)}{wanted}",
        key=key.encode() if key else None,
        value=value.encode() if value else None,
    )


def as_group(row: Mapping[str, Any], table: str, stage: str) -> DeadLetterGroup:
    """Dead letters of a side table with the same column and reason."""
    return DeadLetterGroup(table, stage, KIND, int(row["records"]), row["first"], _of_column(row))


def _of_column(row: Mapping[str, Any]) -> str:
    return f"{row['column']}: {row['reason']}" if row["column"] else row["reason"]
