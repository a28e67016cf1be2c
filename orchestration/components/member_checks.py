"""Checks over many topics, or over the tables of one entry: they fail if any of these is wrong, also one that had
nothing new in this run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as Status

from jobs.batch import CommittedState, LandedBatch
from jobs.circuit_breaker import CircuitBreaker
from jobs.members.members import Members
from jobs.pipeline import Pipeline
from jobs.spec.members import Member
from jobs.spec.pipeline import Freshness
from orchestration import open_lineage
from orchestration.components import checks, metadata
from orchestration.components.ends import Ends, EndsByMember
from orchestration.components.member_metadata import MergedMember, table_label
from orchestration.components.merging import report, settled
from resources.errors import BatchmergeError, Unavailable

_ENDED = {Status.SUCCEEDED, Status.FAILED}
Results = Sequence[dg.AssetCheckResult]
# Checks of the table's own state, which stay failed until that changes. The others are about one merge only.
_LASTING = (checks.STALE, checks.SCHEMA, checks.CAUGHT_UP)


def landing_results_of_topics(
    instance: dg.DagsterInstance,
    members: Members,
    key: dg.AssetKey,
    landed: Mapping[str, Sequence[LandedBatch]],
    invariants: Callable[[Member, Sequence[LandedBatch]], Results],
) -> list[dg.AssetCheckResult]:
    """Combines the results of the landed topics, and sends their lineage. A topic that failed `fields_declared` is
    checked again until it passes; checking all topics each time would read hundreds of tables.

    Args:
        landed: by topic the new batches.
        invariants: the other results of a topic, from all of its landed batches.
    """
    every, found = replace(members, topics=()), dict[str, Results]()
    known = every.known()
    for member in known:
        if new := landed.get(member.key):
            pipeline = members.open(member)
            batches = pipeline.intermediate.landed().batches
            fields = checks.fields_result(key, pipeline.spec, batches)
            found[member.key] = [*invariants(member, batches), fields]
            open_lineage.send_landed(pipeline, metadata.total(new).landed)

    def look(pipeline: Pipeline) -> list[dg.AssetCheckResult]:
        return [checks.fields_result(key, pipeline.spec, pipeline.intermediate.landed().batches)]

    before = wrong_before(instance, dg.AssetCheckKey(key, checks.FIELDS)) - found.keys()
    again = [member for member in known if member.key in before]
    looked = {outcome.key: outcome.done or [] for outcome in every.each("checks", again, look)}
    return checks.combined_results(key, checks.landing_checks(key), {**looked, **found})


@dataclass(frozen=True)
class TableSeen:
    """A table's committed state as the step has read it; `label` is made by `table_label`."""

    label: str
    committed: CommittedState | None


def table_results_of_members(
    instance: dg.DagsterInstance,
    members: Members,
    key: dg.AssetKey,
    number: int,
    merged: Sequence[MergedMember],
    ends: EndsByMember,
    seen: Mapping[str, TableSeen],
    breaker: CircuitBreaker,
    problems: Mapping[str, BatchmergeError],
) -> list[dg.AssetCheckResult]:
    """Combines the results of the merged tables. A table that failed is checked again until it passes. With `freshness`
    every table's age is checked: one that gets no records falls behind too.

    Args:
        key: the asset of the entry.
        number: the entry's number in `tables`.
        seen: by member the tables that the step has read and not merged; their age is known without another look.
        problems: by member the errors of tables that were not merged. Those that have not answered are not asked here
            again: what was wrong with them stays so, and their age is unknown.
    """
    silent = {member for member, problem in problems.items() if isinstance(problem, Unavailable)}
    every = replace(members, topics=())
    entry, found = members.spec.tables[number], {one.label: one.results for one in merged}
    freshness = members.spec.freshness
    specs = checks.table_checks(key, entry, freshness)
    lasting = [spec.name for spec in specs if spec.name in _LASTING]
    wrong = {name: wrong_before(instance, dg.AssetCheckKey(key, name)) for name in lasting}
    before = set[str]().union(*wrong.values())
    if not (freshness or before - found.keys()):
        return checks.combined_results(key, specs, found)
    unmerged = {member: one for member, one in seen.items() if one.label not in before | found.keys()}
    looked: dict[str, Results] = (
        {one.label: [_caught_up(key, one.committed, freshness, ends.of(member))] for member, one in unmerged.items()}
        if freshness
        else {}
    )

    def look(pipeline: Pipeline) -> tuple[str, Results] | None:
        table, member = pipeline.table(number), member_key(pipeline)
        label, now = table_label(member, table.table), ends.of(member)
        destination = pipeline.destination_of(table)
        if label in found:
            return None
        if member in silent:
            unknown = [name for name in lasting if name == checks.CAUGHT_UP or label in wrong[name]]
            return label, [_not_asked(key, name) for name in unknown]
        if label in before:
            done = breaker.call(
                table.connection,
                destination.name,
                lambda: settled(pipeline, destination),
                table.time_limit_seconds,
            )
            return label, report(pipeline, key, table, done, None, now)[0]
        if not freshness:
            return None
        committed = breaker.call(table.connection, destination.name, destination.committed)
        return label, [_caught_up(key, committed, freshness, now)]

    others = [member for member in every.known() if member.key not in unmerged]
    looked |= (outcome.done for outcome in every.each(f"checks-{number}", others, look) if outcome.done)
    return checks.combined_results(key, specs, {**looked, **found})


def member_key(pipeline: Pipeline) -> str:
    """The key of the member that is opened as this pipeline."""
    return pipeline.only or pipeline.spec.source.topics[0]


def wrong_before(instance: dg.DagsterInstance, check: dg.AssetCheckKey) -> set[str]:
    """The tables or topics that failed in the newest result of a combined check."""
    newest = instance.event_log_storage.get_asset_check_execution_history(check, limit=1, status=_ENDED)
    evaluation = newest[0].evaluation if newest else None
    said = evaluation.metadata.get(checks.WRONG_OF) if evaluation else None
    return (
        set(map(str, said.value)) if isinstance(said, dg.JsonMetadataValue) and isinstance(said.value, list) else set()
    )


def _not_asked(key: dg.AssetKey, check: str) -> dg.AssetCheckResult:
    why, severity = "it has not answered, or is suspended since it hung", dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(passed=False, asset_key=key, check_name=check, severity=severity, description=why)


def _caught_up(key: dg.AssetKey, state: CommittedState | None, freshness: Freshness, now: Ends) -> dg.AssetCheckResult:
    return checks.caught_up_result(key, freshness, state.watermark if state else None, now.lag(state), now.at)
