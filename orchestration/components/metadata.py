"""What a materialization shows. Pure: engine values in, Dagster metadata out.

Dagster itself wraps numbers and text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from jobs import offsets
from jobs.batch import Counts, LandedBatch, MergeCounts
from jobs.behind import caught_up_through
from jobs.destinations.registry import kind_of
from jobs.merged import MergedBatches
from jobs.offsets import Offsets
from jobs.schema.types import type_name
from jobs.spec.columns import RowColumn, row_columns
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from jobs.watermark import Watermark
from orchestration.names import STALE_KEYS, landing_key
from resources.errors import ConfigurationError

# With many topics or tables: those that failed, each with its error.
FAILED = "failed topics"
# With many topics: what was landed of each.
TOPICS = "topics"
# With many topics: those that the step was for, if it was not for all.
ONLY = "only topics"
# The pause because of which the step has done nothing.
HELD = "held"
# The hours of a replay. A landing with it shows what was landed in them, and has landed nothing itself.
REPLAY_OF = "replay of"
# The hours of a replay that a landing has read from Kafka again, and has landed.
READ_AGAIN = "read again"
# Prefix of the seconds that one stage of a merge took.
STAGE = "seconds "


def landed(batches: Sequence[LandedBatch], seconds: float) -> dict[str, Any]:
    """What a run landed: batches, offsets before and after, records by what became of them."""
    counts = total(batches)
    return {
        **_batches(batches),
        **vars(counts),
        **fields_and_columns(unknown(batches), new_columns(batches)),
        "seconds": round(float(seconds), 3),
        "records per second": round(counts.read / seconds, 1) if seconds else 0.0,
        **({"snapshot id": str(batches[-1].snapshot_id)} if batches else {}),
    }


def merged(done: MergedBatches | None, reference: str) -> dict[str, Any]:
    """What a merge or a replay did to a table.

    Args:
        done: None where there was nothing to merge.
        reference: what the table's system calls its commits: snapshot id, job id, query id.
    """
    if done is None:
        return {"batches": 0}
    counts, records = done.merged.counts, total(done.batches)
    # Rows that the table's system cannot store as they were landed.
    unfit = {"refused": counts.refused, "skipped": counts.skipped, "out of range": counts.out_of_range}
    return {
        **_batches(done.batches),
        "batch before": done.before.batch_number if done.before else 0,
        **effect(counts),
        **{name: number for name, number in unfit.items() if number},
        "read": records.read,
        "quarantined": records.quarantined,
        **stage_seconds([done.merged.seconds]),
        reference: done.merged.reference,
    }


def effect(counts: MergeCounts) -> dict[str, int]:
    """What merges did to the rows of tables."""
    names = ("changes", "inserted", "updated", "deleted")
    return {name: getattr(counts, name) for name in names}


def stage_seconds(done: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Seconds by stage, summed over the merges of one or several tables, which may have run side by side."""
    stages: dict[str, float] = {}
    for stage, taken in (one for merge in done for one in merge.items()):
        stages[stage] = stages.get(stage, 0.0) + taken
    return {
        "seconds": round(sum(stages.values(), 0.0), 3),
        **{f"{STAGE}{stage}": round(taken, 3) for stage, taken in stages.items()},
    }


def tried(topics: Sequence[str], paused: str | None) -> dict[str, Any]:
    """What a step was for: only these topics, or nothing, because of a pause; empty where it was for all it writes."""
    only = {ONLY: dg.MetadataValue.json(list(topics))} if topics else {}
    return {**only, **({HELD: paused} if paused else {})}


def appeared(what: str, new: Sequence[str], pipeline: str) -> dict[str, str]:
    """Names new topics or tables: they are landed and merged, and get their assets when the definitions are loaded
    again; nothing if there are none."""
    return {f"new {what}": f"{', '.join(new)}: reload the code location to see the assets of {pipeline}"} if new else {}


def progress(watermark: Watermark | None, lag: int | None, now: datetime) -> dict[str, Any]:
    """How current a table is: record time, and records that still wait. A table without lag is caught up as of now."""
    found: dict[str, Any] = {}
    if lag is not None:
        found["lag"] = lag
    if watermark and watermark.vtts is not None:
        found["VTTS"] = dg.MetadataValue.timestamp(datetime.fromtimestamp(watermark.vtts / 1000, UTC))
    reached = caught_up_through(watermark, lag, now)
    if reached is not None:
        found["caught up through"] = dg.MetadataValue.timestamp(reached)
    return found


def row_count(rows: int | str | None) -> dict[str, int | str]:
    """The row count, where Dagster shows it as the table's; or as text why it is unknown."""
    if rows is None:
        return {}
    return {"row count" if isinstance(rows, str) else "dagster/row_count": rows}


def stale_keys(keys: int) -> dict[str, int]:
    """The number of keys of which the table has an older row than was sent; nothing if there are none."""
    return {STALE_KEYS: keys} if keys else {}


def table_columns(spec: PipelineSpec, table: Table) -> list[RowColumn]:
    """The row's columns under the names that they have in this system."""
    try:
        return kind_of(table).columns(spec, table)
    except ConfigurationError:  # reported by the first run, with its remedy
        return row_columns(spec, table)


def column_schema(columns: Sequence[RowColumn]) -> dg.TableSchema:
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                c.name,
                type_name(c.table_type),
                description="part of the key" if c.is_key else None,
                constraints=dg.TableColumnConstraints(nullable=c.nullable),
            )
            for c in columns
        ]
    )


def about_table(pipeline: str, table: Table, columns: Sequence[RowColumn]) -> dict[str, Any]:
    """A table's definition: its name, its columns, and which part of a landed row each column is made from."""
    landing = landing_key(pipeline)
    made_from = {c.name: [dg.TableColumnDep(landing, ".".join(c.path))] for c in columns}
    return {
        "dagster/table_name": f"{table.connection}.{table.table}",
        "dagster/column_schema": column_schema(columns),
        "dagster/column_lineage": dg.TableColumnLineage(made_from),
    }


def total(batches: Sequence[LandedBatch]) -> Counts:
    """The counts of several batches together."""
    return sum((b.counts for b in batches), Counts())


def _batches(batches: Sequence[LandedBatch]) -> dict[str, Any]:
    if not batches:
        return {"batches": 0}
    first, last = batches[0].batch, batches[-1].batch
    return {
        "batches": len(batches),
        "first batch": first.number,
        "last batch": last.number,
        "commit id": last.commit_id,
        "offsets before": dg.MetadataValue.json(_by_topic(offsets.starts(first.ranges))),
        "offsets after": dg.MetadataValue.json(_by_topic(offsets.ends(last.ranges))),
    }


def unknown(batches: Sequence[LandedBatch]) -> dict[str, int]:
    """Fields that no column takes, each with the number of records that had it."""
    found: dict[str, int] = {}
    for batch in batches:
        for name, records in batch.unknown.items():
            found[name] = found.get(name, 0) + records
    return found


def new_columns(batches: Sequence[LandedBatch]) -> dict[str, str]:
    """Columns that records have brought, with their types; `int to long` for one that was widened."""
    return {name: kind for batch in batches for name, kind in batch.new_columns.items()}


def fields_and_columns(left_out: Mapping[str, object], brought: Mapping[str, object]) -> dict[str, Any]:
    """Metadata on unknown fields and new columns, by field or by topic and field; nothing where there are none."""
    found = {"unknown fields": left_out, "new columns": brought}
    named = {what: {name: one for name, one in by_name.items() if one} for what, by_name in found.items()}
    return {what: dg.MetadataValue.json(by_name) for what, by_name in named.items() if by_name}


def _by_topic(values: Offsets) -> Mapping[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(values.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found
