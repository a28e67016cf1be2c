"""Which checks a pipeline's assets have, and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import dagster as dg

from jobs.batch import CommittedState, LandedBatch
from jobs.behind import caught_up_through
from jobs.destinations.refused_rows import list_command, retry_command
from jobs.destinations.registry import kind_of
from jobs.spec.added_columns import undeclared_counts
from jobs.spec.pipeline import Freshness, PipelineSpec
from jobs.spec.tables import Table
from jobs.verify import invariants
from jobs.watermark import Watermark
from orchestration.names import STALE_KEYS

# Names of the checks; `_SAYS` describes each.
OFFSETS = "offsets_contiguous"
COUNTS = "counts_add_up"
NEXT = "batch_is_next"
KEYS = "keys_unique"
CAUGHT_UP = "caught_up"
SCHEMA = "schema_as_declared"
STALE = "no_stale_keys"
FIELDS = "fields_declared"
# Metadata of a check over several tables or topics: the names of those that failed it.
WRONG_OF = "wrong of"

_SAYS = {
    OFFSETS: "every batch starts at the offsets where the one before it ended",
    COUNTS: "records read = landed + quarantined + filtered + skipped, each counted on its own",
    NEXT: "every batch follows the one before it, by number and commit id",
    FIELDS: "every field of the records has a column, or the file sets `unknown_fields`",
    KEYS: "no key of the batch has more than one row",
    SCHEMA: "the table has the columns that the pipeline file declares, and no others",
    STALE: "of no key the table has an older row because the newest change is a dead letter",
    CAUGHT_UP: "record time is not further behind than `freshness.warn_minutes`",
}


def landing_checks(key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    blocking = [_blocking(name, key) for name in (OFFSETS, COUNTS, NEXT)]
    return [*blocking, dg.AssetCheckSpec(FIELDS, asset=key, description=_SAYS[FIELDS])]


def table_checks(key: dg.AssetKey, table: Table, freshness: Freshness | None) -> list[dg.AssetCheckSpec]:
    found = [_blocking(OFFSETS, key), _blocking(NEXT, key)]
    found.append(dg.AssetCheckSpec(SCHEMA, asset=key, description=_SAYS[SCHEMA]))
    if counts_keys(table):
        found.append(_blocking(KEYS, key))
    if table.has_unique_key:
        found.append(dg.AssetCheckSpec(STALE, asset=key, description=_SAYS[STALE]))
    if freshness:
        found.append(dg.AssetCheckSpec(CAUGHT_UP, asset=key, description=_SAYS[CAUGHT_UP]))
    return found


def counts_keys(table: Table) -> bool:
    """Whether each merge counts the rows per key: the table has one row per key, and its system can count them."""
    return kind_of(table).capabilities.counts_keys_at_merge and table.has_unique_key


def landing_results(
    key: dg.AssetKey, landed: Sequence[LandedBatch], new: int | None = None
) -> list[dg.AssetCheckResult]:
    """Checks all known landed batches, so that a retry has the same results as the first try.

    Args:
        new: how many of the batches, at the end, are new. Only their offsets are compared: there may be thousands of
            batches of thousands of partitions. None: all. A merge refuses batches with a gap (`jobs.lineage`).
    """
    known, recent = {"batches": len(landed)}, landed if new is None else landed[-new - 1 :]
    return [
        _result(OFFSETS, key, invariants.offset_jumps(recent), known),
        _result(COUNTS, key, invariants.unbalanced(landed), known),
        _result(NEXT, key, invariants.not_next(landed), known),
    ]


def with_others(own: Sequence[LandedBatch], landed: Callable[[], Sequence[LandedBatch]]) -> Sequence[LandedBatch]:
    """A step's own batches, and those that another run landed between them (a replay beside a continuous run)."""
    if not own or own[-1].number - own[0].number == len(own) - 1:
        return own
    return [batch for batch in landed() if own[0].number <= batch.number <= own[-1].number]


def fields_result(key: dg.AssetKey, spec: PipelineSpec, landed: Sequence[LandedBatch]) -> dg.AssetCheckResult:
    """Names the fields that no column takes; warns of them, unless the file has `unknown_fields`."""
    left_out = undeclared_counts(spec, [batch.unknown for batch in landed])
    wrong = [f"no column takes the field {name}, which {records} records have" for name, records in left_out.items()]
    known = {"fields left out": len(left_out), **{f"records with {name}": n for name, n in left_out.items()}}
    settled = spec.source.value.unknown_fields is not None
    return _result(FIELDS, key, [] if settled else wrong, known, dg.AssetCheckSeverity.WARN)


def table_results(
    key: dg.AssetKey, state: CommittedState | None, landed: Sequence[LandedBatch], merged: Sequence[LandedBatch]
) -> list[dg.AssetCheckResult]:
    """Compares the table's state with the landed batches, and the batches that were merged now with each other."""
    batch = {"batch": state.batch_number if state else 0}
    return [
        _result(OFFSETS, key, invariants.offset_mismatch(state, landed), batch),
        _result(NEXT, key, invariants.not_next(merged), batch),
    ]


def keys_result(key: dg.AssetKey, duplicates: int, known: Mapping[str, int] | None = None) -> dg.AssetCheckResult:
    wrong = [f"{duplicates} keys have more than one row"] if duplicates else []
    return _result(KEYS, key, wrong, {"duplicate keys": duplicates, **(known or {})})


def stale_result(key: dg.AssetKey, stale: int, pipeline: str) -> dg.AssetCheckResult:
    """Warns of keys of which the table has an older row than was sent; never stops anything."""
    wrong = []
    if stale:
        remedy = f"see `{list_command(pipeline)}`, correct the file, then `{retry_command(pipeline)}`"
        wrong = [f"the newest change of {stale} keys is a dead letter, so the table has an older row of them: {remedy}"]
    return _result(STALE, key, wrong, {STALE_KEYS: stale}, dg.AssetCheckSeverity.WARN)


def schema_result(key: dg.AssetKey, drift: Sequence[str]) -> dg.AssetCheckResult:
    """Warns where somebody else has changed the table's columns; never stops anything."""
    return _result(SCHEMA, key, drift, {"differences": len(drift)}, dg.AssetCheckSeverity.WARN)


def caught_up_result(
    key: dg.AssetKey, freshness: Freshness, watermark: Watermark | None, lag: int | None, now: datetime
) -> dg.AssetCheckResult:
    """Warns when record time is behind by more than `freshness.warn_minutes`, or not known; never stops anything.

    Args:
        watermark: the table's; None: it has no batch yet.
        lag: offsets that it has still to get; None: not known.
    """
    through = caught_up_through(watermark, lag, now)
    behind = None if through is None else (now - through).total_seconds() / 60
    wrong = []
    if behind is not None and behind > freshness.warn_minutes:
        wrong = [f"behind by {behind:.0f} minutes, {freshness.warn_minutes} are allowed"]
    elif behind is None and lag:
        unread = "no record is read yet, or all are dated more than a day ahead"
        wrong = [f"{lag} records wait, and how old they are is not known: of a topic-partition {unread}"]
    known = {} if behind is None else {"minutes behind": round(max(behind, 0.0), 2)}
    return _result(CAUGHT_UP, key, wrong, known, dg.AssetCheckSeverity.WARN)


def combined_results(
    key: dg.AssetKey, specs: Sequence[dg.AssetCheckSpec], found: Mapping[str, Sequence[dg.AssetCheckResult]]
) -> list[dg.AssetCheckResult]:
    """Combines the checks of several tables, or topics, into those of one asset, which name what failed.

    Args:
        found: the results by the name of the table.
    """
    results = []
    for spec in specs:
        same = {name: one for name, ones in found.items() for one in ones if one.check_name == spec.name}
        failed = {name: one for name, one in same.items() if not one.passed}
        wrong = [f"{name}: {one.description}" for name, one in failed.items()]
        severe = next((one.severity for one in failed.values()), dg.AssetCheckSeverity.ERROR)
        names = {WRONG_OF: dg.MetadataValue.json(sorted(failed))} if failed else {}
        results.append(_result(spec.name, key, wrong, {"looked at": len(same), **names}, severe))
    return results


def _blocking(name: str, key: dg.AssetKey) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(name, asset=key, blocking=True, description=_SAYS[name])


def _result(
    name: str,
    key: dg.AssetKey,
    wrong: Sequence[str],
    known: Mapping[str, Any],
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> dg.AssetCheckResult:
    shown = {"wrong": dg.MetadataValue.json(list(wrong[:20]))} if wrong else {}
    return dg.AssetCheckResult(
        check_name=name,
        asset_key=key,
        passed=not wrong,
        severity=severity,
        description="; ".join(wrong[:3]) or None,
        metadata={**known, **shown},
    )
