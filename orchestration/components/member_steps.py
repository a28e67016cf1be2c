"""The steps of a pipeline with many tables. With `for_each` one step lands all topics, and one step for each entry of
`tables` merges the tables of all topics. With `new_tables` the landing is the ordinary one, and the members are the
names that records gave tables.

A member that fails does not stop the others. The landing's step records it in its metadata and succeeds; the tables'
steps merge what is landed and fail at their end, with the errors of the landing and their own. In a run without tables'
steps the landing's step fails at its end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import dagster as dg

from jobs import offsets
from jobs.batch import LandedBatch
from jobs.circuit_breaker import CircuitBreaker
from jobs.destinations.base import lack, oldest
from jobs.members.landing import land
from jobs.members.members import Members
from jobs.members.side_by_side import Outcome, problems_of
from jobs.pipeline import Pipeline
from jobs.spec.members import Member
from jobs.spec.tables import Table
from orchestration import names
from orchestration.components import checks, metadata
from orchestration.components.config import LandConfig, MergeConfig
from orchestration.components.ends import EndsByMember
from orchestration.components.failures import as_failures, raise_for_checks
from orchestration.components.landing import reread_hours
from orchestration.components.launch import Launch
from orchestration.components.member_checks import (
    TableSeen,
    landing_results_of_topics,
    member_key,
    table_results_of_members,
)
from orchestration.components.member_metadata import (
    MergedMember,
    landed_metadata,
    materialize_each,
    merged_metadata,
    table_label,
)
from orchestration.components.merging import TableResult, advance_or_replay, report, within_limit
from orchestration.components.metadata import table_columns
from orchestration.components.progress import engine_log_in_run
from orchestration.components.suspended_members import SuspendedMembers
from orchestration.components.window import Window
from orchestration.pauses import launched_by_hand
from resources.errors import BatchmergeError, TerminalError, TimeLimitReached, TransientError

# Errors that the error of a step quotes; others are only counted.
_NAMED = 5
# Seconds until the run's log has the same line for another topic; the metadata has all topics.
_PAUSE = 1.0
# Seconds that a table has to show its committed state.
_LOOK = 60.0


def run_landing_of_members(
    context: dg.AssetExecutionContext, launch: Launch, key: dg.AssetKey, config: LandConfig
) -> Iterator[dg.MaterializeResult[Any]]:
    """Lands every topic that has something new. A replay lands only what it reads from Kafka again."""
    began = time.monotonic()
    outcomes = list[Outcome[list[LandedBatch]]]()
    appeared: Sequence[str] = ()
    with as_failures(launch.spec.retry, context.retry_number), engine_log_in_run(context.log, pause=_PAUSE):
        replayed = launch.replayed_window(context, config.mode)
        paused = None if replayed else launch.reason_to_stop(context)
        members = launch.members(context.run.run_id, config.topics)
        if replayed:
            outcomes = list(_reread(members, replayed))
        elif paused:
            context.log.info("nothing is landed: %s", paused)
        else:
            seen = members.look()
            appeared = seen.appeared
            batch = launch.spec.batch
            most, turn = config.batches(batch.max_batches), config.turn(batch.time_limit_seconds)
            outcomes = list(land(members, seen, most, turn))
            if not config.topics:
                _tag_landed(context, members)
        landed = {outcome.key: outcome.done for outcome in outcomes if outcome.done}
        problems = problems_of(outcomes)
        SuspendedMembers(context.instance, key).record(landed, {})

        def invariants(member: Member, batches: Sequence[LandedBatch]) -> list[dg.AssetCheckResult]:
            return checks.landing_results(key, batches, len(landed[member.key]))

        results = landing_results_of_topics(context.instance, members, key, landed, invariants)
    shown = landed_metadata(landed, problems, time.monotonic() - began)
    shown |= metadata.appeared("topics", appeared, launch.name) | metadata.tried(config.topics, paused)
    if replayed and outcomes:
        shown[metadata.READ_AGAIN] = str(replayed)
    yield dg.MaterializeResult(asset_key=key, check_results=results, metadata=shown)
    raise_for_checks(results, "/".join(key.path))
    if problems and not _has_table_steps(context, launch):
        with as_failures(launch.spec.retry, context.retry_number):
            raise _combined_problem(launch, problems, {})


def _reread(members: Members, window: Window) -> Iterator[Outcome[list[LandedBatch]]]:
    """Reads these hours from Kafka for each topic whose landed batches are all younger."""

    def work(pipeline: Pipeline) -> list[LandedBatch] | None:
        if not window.is_before(pipeline.intermediate.landed().batches):
            return None
        return reread_hours(pipeline, window) or None

    return members.each("landing", members.known(), work)


def _tag_landed(context: dg.AssetExecutionContext, members: Members) -> None:
    """Says in the run's tag what is landed; not if a topic has not answered: then nothing says that the next run is not
    needed. The landing and the tables' steps report such a topic."""
    with suppress(BatchmergeError):
        landed, failed = members.landed()
        if not failed:
            newest = sum(state.batch_number for state in landed)
            context.instance.add_run_tags(context.run.run_id, {names.LANDED_TAG: str(newest)})


def run_merges_of_members(
    context: dg.AssetExecutionContext, launch: Launch, key: dg.AssetKey, number: int, config: MergeConfig
) -> Iterator[dg.MaterializeResult[Any]]:
    """Merges the tables that one entry of `tables` stands for, and reports each of them by itself."""
    problems, seen = dict[str, BatchmergeError](), dict[str, TableSeen]()
    with as_failures(launch.spec.retry, context.retry_number), engine_log_in_run(context.log, pause=_PAUSE):
        replayed = launch.replayed_window(context, config.mode)
        members = launch.members(context.run.run_id, config.topics)

        hour = context.partition_keys[-1] if context.has_partition_key or context.has_partition_key_range else None
        paused = None if replayed else launch.reason_to_stop(context, launch.spec.tables[number])
        if paused:
            context.log.info("nothing is merged: %s", paused)
        due, breaker = [] if paused else members.known(), CircuitBreaker(_LOOK)
        suspended = SuspendedMembers(context.instance, key)
        if not replayed:
            left_out = {} if launched_by_hand(context.run.tags) else suspended.now()
            problems |= {member.key: left_out[member.key] for member in due if member.key in left_out}
            looked_at = [member for member in due if member.key not in left_out]
            due, seen, silent = behind(members, number, looked_at, breaker)
            suspended.record(seen, silent, others=len(due))
            problems |= silent
        ends = EndsByMember.now(members, due)

        def work(pipeline: Pipeline) -> MergedMember | None:
            return _merge(pipeline, pipeline.table(number), replayed, ends, breaker)

        outcomes = members.each_merging(f"tables-{number}", due, work)
        merged, failed = materialize_each(context.log_event, outcomes, hour)
        suspended.record([one.key for one in merged], failed)
        problems |= failed
        not_done = suspended.now() | problems
        results = table_results_of_members(
            context.instance, members, key, number, merged, ends, seen, breaker, not_done
        )
    shown = {**merged_metadata(merged, not_done), **metadata.tried(config.topics, paused)}
    yield dg.MaterializeResult(asset_key=key, check_results=results, metadata=shown)
    raise_for_checks(results, "/".join(key.path))
    before = _failed_in_landing(context, names.landing_key(launch.name))
    if problems or before:
        # A retry of this step does not help where only the landing failed, or tables hang.
        again = any(not isinstance(problem, TimeLimitReached) for problem in problems.values())
        with as_failures(launch.spec.retry if again else None, context.retry_number):
            raise _combined_problem(launch, problems, before)


def behind(
    members: Members, number: int, known: Sequence[Member], breaker: CircuitBreaker
) -> tuple[list[Member], dict[str, TableSeen], dict[str, BatchmergeError]]:
    """Looks at the committed states of all members.

    Returns:
        The members whose table lacks landed batches, or has unpublished commit events; the tables of the others, by
        key; and the errors of those that do not answer, by key.
    """
    are_published = members.published_check(f"tables-{number}")

    def look(pipeline: Pipeline) -> TableSeen | None:
        """None: the table is behind."""
        table, place = pipeline.table(number), pipeline.intermediate
        landed = breaker.call(pipeline.spec.intermediate.connection, place.identifier, place.landed).batches
        if not landed and not members.spec.freshness:
            return TableSeen(table_label(member_key(pipeline), table.table), None)
        destination = pipeline.destination_of(table)
        states = breaker.call(table.connection, destination.name, destination.states)
        if landed:
            newest = landed[-1].batch
            if lack(states, newest.commit_id) or not are_published(offsets.ends(newest.ranges)):
                return None
        return TableSeen(table_label(member_key(pipeline), table.table), oldest(states))

    found = list(members.each(f"tables-{number}", known, look))
    problems = problems_of(found)
    seen = {o.key: o.done for o in found if o.done}
    return [member for member in known if member.key not in seen | problems], seen, problems


def _merge(
    pipeline: Pipeline, table: Table, replayed: Window | None, ends: EndsByMember, breaker: CircuitBreaker
) -> MergedMember:
    destination, key = pipeline.destination_of(table), member_key(pipeline)
    columns = table_columns(destination.spec, table)

    def merge() -> TableResult:
        return within_limit(pipeline, destination, columns, lambda: advance_or_replay(pipeline, destination, replayed))

    done = breaker.run(table.connection, destination.name, merge)
    results = report(pipeline, names.table_key(table), table, done, replayed, ends.of(key))
    return MergedMember(key, table, done, *results)


def _failed_in_landing(context: dg.AssetExecutionContext, landing: dg.AssetKey) -> dict[str, dict[str, Any]]:
    """The members that failed in this run's landing step, from its metadata."""
    entries = context.instance.all_logs(context.run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    made = [one for entry in entries if (one := entry.asset_materialization) and one.asset_key == landing]
    said = made[-1].metadata.get(metadata.FAILED) if made else None
    return dict(said.value) if isinstance(said, dg.JsonMetadataValue) and isinstance(said.value, dict) else {}


def _has_table_steps(context: dg.AssetExecutionContext, launch: Launch) -> bool:
    """Whether the run has a table's step, which reports what failed in the landing."""
    tables, steps = {names.table_key(table) for table in launch.spec.tables}, context.run.step_keys_to_execute
    executed = (key for key in context.job_def.asset_layer.executable_asset_keys if key in tables)
    return any(steps is None or names.op_name(launch.name, key) in steps for key in executed)


def _combined_problem(
    launch: Launch, problems: Mapping[str, BatchmergeError], before: Mapping[str, dict[str, Any]]
) -> BatchmergeError:
    """One error for all members that failed: transient only where each of them is."""
    texts = {**{t: str(one["problem"]) for t, one in before.items()}, **{t: str(p) for t, p in problems.items()}}
    transient = all(one["transient"] for one in before.values()) and all(
        isinstance(problem, TransientError) for problem in problems.values()
    )
    shown = [f"{member}: {text}" for member, text in sorted(texts.items())]
    more = f"; and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    kind, what = TransientError if transient else TerminalError, "topic" if launch.spec.source.for_each else "table"
    return kind(
        f"{len(shown)} {what}{'s' if len(shown) > 1 else ''} failed, the others are done: "
        f"{'; '.join(shown[:_NAMED])}{more}",
        where=f"pipeline {launch.name}",
        remedy="the next run tries each of them again",
    )
