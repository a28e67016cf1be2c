"""What the steps of a pipeline with many tables show: of each member, and of all together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from jobs.batch import LandedBatch, MergeCounts
from jobs.members.side_by_side import Outcome, problems_of
from jobs.spec.tables import Table
from orchestration import names
from orchestration.components import metadata
from orchestration.components.merging import TableResult
from resources.errors import BatchmergeError, TransientError


def table_label(member: str, table: str) -> str:
    """How checks of several tables name one of them."""
    return f"{member} {table}"


@dataclass(frozen=True)
class MergedMember:
    """What a step merged into the table of one member."""

    key: str
    table: Table
    done: TableResult
    results: Sequence[dg.AssetCheckResult]
    facts: Mapping[str, Any]

    @property
    def label(self) -> str:
        return table_label(self.key, self.table.table)

    @property
    def batch(self) -> int:
        return self.done.after.batch_number if self.done.after else 0


def _materialization(merged: MergedMember, hour: str | None) -> dg.AssetMaterialization:
    """A materialization of the table's own asset."""
    after = merged.done.after
    return dg.AssetMaterialization(
        names.table_key(merged.table),
        description=f"rows of {merged.key}",
        partition=hour,
        metadata={**merged.facts, "topic": merged.key},
        tags={"dagster/data_version": after.commit_id} if after else None,
    )


def materialize_each(
    log: Callable[[dg.AssetMaterialization], None], outcomes: Iterable[Outcome[MergedMember]], hour: str | None
) -> tuple[list[MergedMember], dict[str, BatchmergeError]]:
    """Materializes the asset of each table as its outcome comes. Returns what was merged, and the errors by key."""
    done = list[Outcome[MergedMember]]()
    for outcome in outcomes:
        done.append(outcome)
        if outcome.done:
            log(_materialization(outcome.done, hour))
    return [outcome.done for outcome in done if outcome.done], problems_of(done)


def landed_metadata(
    landed: Mapping[str, Sequence[LandedBatch]], problems: Mapping[str, BatchmergeError], seconds: float
) -> dict[str, Any]:
    batches = [batch for of_topic in landed.values() for batch in of_topic]
    counts = metadata.total(batches)
    rows = [
        dg.TableRecord({"topic": topic, "batch": own[-1].number, "batches": len(own), **vars(metadata.total(own))})
        for topic, own in sorted(landed.items())
    ]
    return {
        "batches": len(batches),
        **vars(counts),
        "seconds": round(seconds, 3),
        "records per second": round(counts.read / seconds, 1) if seconds else 0.0,
        **({metadata.TOPICS: dg.MetadataValue.table(rows)} if rows else {}),
        **metadata.fields_and_columns(
            {topic: metadata.unknown(own) for topic, own in landed.items()},
            {topic: metadata.new_columns(own) for topic, own in landed.items()},
        ),
        **_failed(problems),
    }


def merged_metadata(merged: Sequence[MergedMember], problems: Mapping[str, BatchmergeError]) -> dict[str, Any]:
    rows = [
        dg.TableRecord({"topic": one.key, "table": one.table.table, "batch": one.batch})
        for one in sorted(merged, key=lambda one: one.key)
    ]
    return {
        "batches": sum(len(one.done.batches) for one in merged),
        **metadata.effect(sum((one.done.counts for one in merged), MergeCounts())),
        **metadata.stage_seconds([one.done.merge.merged.seconds for one in merged if one.done.merge]),
        **({"tables": dg.MetadataValue.table(rows)} if rows else {}),
        **_failed(problems),
    }


def _failed(problems: Mapping[str, BatchmergeError]) -> dict[str, Any]:
    if not problems:
        return {}
    texts = {
        member: {"problem": str(problem), "transient": isinstance(problem, TransientError)}
        for member, problem in sorted(problems.items())
    }
    return {metadata.FAILED: dg.MetadataValue.json(texts)}
