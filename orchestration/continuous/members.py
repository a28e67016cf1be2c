"""The steps of a continuous run, where the pipeline has many tables (`for_each`, `new_tables`).

A tick works only on members that have changed since nothing was left to do for them. A member that fails does not stop
the others: it is tried again, after a longer pause each time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dagster import AssetCheckResult

from jobs import protocol
from jobs.batch import LandedBatch
from jobs.circuit_breaker import CircuitBreaker
from jobs.destinations.base import Destination
from jobs.members.landing import land
from jobs.members.members import Members
from jobs.members.side_by_side import Outcome
from jobs.members.topics import Seen
from jobs.merged import MergedBatches, MergedTable
from jobs.pipeline import Pipeline
from jobs.spec.members import Member
from jobs.time_limit import with_timeout
from orchestration import names, open_lineage
from orchestration.components import checks, metadata
from orchestration.components.ends import EndsByMember
from orchestration.components.member_checks import (
    landing_results_of_topics,
    member_key,
    table_label,
    table_results_of_members,
)
from orchestration.components.member_metadata import (
    MergedMember,
    landed_metadata,
    materialization,
    merged_metadata,
    seen_metadata,
)
from orchestration.components.merging import TableResult, report, settled
from orchestration.components.suspended_members import SuspendedMembers
from orchestration.continuous.step import ContinuousStep
from orchestration.continuous.topics import Topics
from orchestration.pools.turns import Over
from resources.errors import BatchmergeError


def land_members_continuously(step: ContinuousStep) -> None:
    """Lands every topic that has something new at every tick, until the step is over."""
    with step.at_work() as ticks:
        members, topics = step.members(), Topics(SuspendedMembers(step.context.instance, step.key))
        done = _LandedTopics()
        limit = step.launch.spec.batch.time_limit_seconds
        for _ in ticks:
            seen, now = with_timeout(limit, f"topics of {members.name}", members.look), time.monotonic()
            due = {m.key: m for m in seen.members if topics.is_due(m.key, seen.states[m.key], now)}
            if topics.not_suspended(due):
                with suppress(Over), step.turn():  # then the ticks end, and what was done is reported
                    due = topics.not_suspended(due)
                    outcomes = _land(step, members, replace(seen, members=[*due.values()], failed={}), done)
                    # A topic that has landed a batch may have more to land: it stays due.
                    stood = {topic: None if topic in outcomes else seen.states[topic] for topic in due}
                    topics.record(stood, _problems(outcomes), time.monotonic())
            done.see(seen)
            if step.is_due(bool(done.batches)):
                _materialize_landed(step, members, topics, done)
        if done.batches:
            _materialize_landed(step, members, topics, done)


@dataclass
class _LandedTopics:
    """What was landed since the last materialization, by topic, and the seconds that took; the batch before that, and
    what Kafka had last."""

    batches: dict[str, list[LandedBatch]] = field(default_factory=dict)
    before: dict[str, LandedBatch] = field(default_factory=dict)
    seconds: float = 0.0
    seen: Seen | None = None
    appeared: tuple[str, ...] = ()

    def results(self, step: ContinuousStep, members: Members, member: Member) -> list[AssetCheckResult]:
        own = self.batches[member.key]
        if member.key in self.before:
            own = [self.before[member.key], *own]
        landed = checks.with_others(own, lambda: members.open(member).intermediate.landed().batches)
        return checks.landing_results(step.key, landed)

    def restart_period(self) -> None:
        self.before |= {topic: batches[-1] for topic, batches in self.batches.items()}
        self.batches, self.seconds, self.appeared = {}, 0.0, ()

    def see(self, seen: Seen) -> None:
        self.seen, self.appeared = seen, (*self.appeared, *seen.appeared)


def _land(
    step: ContinuousStep, members: Members, seen: Seen, done: _LandedTopics
) -> dict[str, Outcome[list[LandedBatch]]]:
    """Lands one batch of each of these topics that has something new: no topic delays the others for longer."""
    outcomes, began = dict[str, Outcome[list[LandedBatch]]](), time.monotonic()
    tables = [names.table_key(table) for table in step.launch.spec.tables]
    for outcome in land(members, seen, 1):
        outcomes[outcome.key] = outcome
        if outcome.done and outcome.member:
            done.batches.setdefault(outcome.key, []).extend(outcome.done)
            step.require_passed(done.results(step, members, outcome.member))
            step.ring(tables)
    done.seconds += time.monotonic() - began
    return outcomes


def _materialize_landed(step: ContinuousStep, members: Members, topics: Topics, done: _LandedTopics) -> None:
    refused = done.seen.failed if done.seen else {}
    problems = {**refused, **topics.problems, **topics.suspended.now()}
    found = dict[str, list[AssetCheckResult]]()
    for member in members.known():
        if landed := done.batches.get(member.key):
            found[member.key] = done.results(step, members, member)
            pipeline = members.open(member)
            every = pipeline.intermediate.landed().batches
            found[member.key].append(checks.fields_result(step.key, pipeline.spec, every))
            open_lineage.send_landed(pipeline, metadata.total(landed).landed)
    results = landing_results_of_topics(step.context.instance, members, step.key, found)
    appeared = replace(done.seen, appeared=done.appeared) if done.seen else None
    shown = {**landed_metadata(done.batches, problems, done.seconds), **seen_metadata(step.launch, appeared)}
    batches = [batch for of_topic in done.batches.values() for batch in of_topic]
    step.observe_topics(len(batches), metadata.total(batches).landed)
    done.restart_period()
    step.materialize(shown, results, None, batches=len(batches), rows=metadata.total(batches).landed)


def merge_members_continuously(step: ContinuousStep) -> None:
    """Merges the tables of one entry whenever they lack landed batches, until the step is over."""
    assert step.table
    number = step.launch.spec.tables.index(step.table)
    with step.at_work() as ticks:
        members, topics = step.members(), Topics(SuspendedMembers(step.context.instance, step.key))
        merges = dict[str, MergedBatches]()
        where, limit = f"landed batches of {members.name}", step.table.time_limit_seconds
        for _ in ticks:
            due = with_timeout(limit, where, lambda: _due(members, topics))
            if topics.not_suspended(due):
                with suppress(Over), step.turn():  # then the ticks end, and what was done is reported
                    due = topics.not_suspended(due)
                    outcomes = _merge(step, members, number, [member for member, _ in due.values()], merges)
                    lacking = {key for key, outcome in outcomes.items() if outcome.done and outcome.done.more}
                    stood = {key: None if key in lacking else landed for key, (_, landed) in due.items()}
                    topics.record(stood, _problems(outcomes), time.monotonic())
            if step.is_due(bool(merges)):
                _materialize_merged(step, members, number, topics, merges)
        if merges:
            _materialize_merged(step, members, number, topics, merges)


def _due(members: Members, topics: Topics) -> dict[str, tuple[Member, str]]:
    """Members that have landed a batch since their table was up to date, each with its newest commit id; by key."""

    def newest(pipeline: Pipeline) -> str | None:
        landed = pipeline.intermediate.committed()
        return landed.commit_id if landed else None

    now = time.monotonic()
    found = [(o.member, o.done) for o in members.each("look", members.known(), newest)]
    return {
        member.key: (member, landed)
        for member, landed in found
        if member and landed and topics.is_due(member.key, landed, now)
    }


def _merge(
    step: ContinuousStep, members: Members, number: int, due: list[Member], merges: dict[str, MergedBatches]
) -> dict[str, Outcome[MergedTable]]:
    """Merges the tables of these members."""
    outcomes, breaker = dict[str, Outcome[MergedTable]](), CircuitBreaker()

    def work(pipeline: Pipeline) -> MergedTable:
        destination = pipeline.destination_of(pipeline.table(number))
        table, merge = destination.table, lambda: _try(pipeline, destination)
        limited = partial(pipeline.in_time, table.time_limit_seconds, destination.name, merge)
        return breaker.run(table.connection, destination.name, limited)

    for outcome in members.each_merging(f"tables-{number}", due, work):
        outcomes[outcome.key] = outcome
        if outcome.done and (merged := outcome.done.merged):
            step.require_passed(checks.table_results(step.key, merged.after, merged.batches, merged.batches))
            merges[outcome.key] = merged.since(merges.get(outcome.key))
    return outcomes


def _try(pipeline: Pipeline, destination: Destination) -> MergedTable:
    """Merges a table, if its own trigger does not say "not yet"."""
    merged, landed = protocol.merge(pipeline, destination), pipeline.intermediate.committed()
    if landed is None or protocol.has_no_columns(pipeline) or (merged and merged.after.commit_id == landed.commit_id):
        return MergedTable(destination, merged)
    return MergedTable(destination, merged, more=destination.lacks(landed.commit_id))


def _materialize_merged(
    step: ContinuousStep, members: Members, number: int, topics: Topics, merges: dict[str, MergedBatches]
) -> None:
    """Reports what was merged since the last materialization, with facts that need a look at the tables."""
    assert step.table

    def look(pipeline: Pipeline) -> MergedMember:
        key = member_key(pipeline)
        table, merged = pipeline.table(number), merges[key]
        destination = pipeline.destination_of(table)

        def after() -> TableResult:
            return settled(pipeline, destination, merged)

        done = breaker.call(table.connection, destination.name, after, table.time_limit_seconds)
        open_lineage.send_merged(pipeline, destination, metadata.table_columns(destination.spec, table), done.written)
        return MergedMember(
            key, table, done, *report(pipeline, names.table_key(table), table, done, None, ends.of(key))
        )

    whose = [member for member in members.known() if member.key in merges]
    ends = EndsByMember.now(members, whose)
    hour = f"{ends.at:%Y-%m-%d-%H:00}"
    shown = list[MergedMember]()
    problems, breaker = dict(topics.problems), CircuitBreaker()
    with step.turn():
        for outcome in members.each(f"tables-{number}", whose, look):
            if outcome.done:
                step.context.log_event(materialization(outcome.done, hour))
                shown.append(outcome.done)
            if outcome.problem:
                problems[outcome.key] = outcome.problem
        found = {table_label(one.key, one.table.table): one.results for one in shown}
        problems |= topics.suspended.now()
        results = table_results_of_members(
            step.context.instance, members, step.key, number, found, ends, {}, breaker, problems
        )
    batches = sum(len(merged.batches) for merged in merges.values())
    rows = sum(merged.merged.counts.changes for merged in merges.values())
    merges.clear()
    step.materialize(merged_metadata(shown, problems), results, None, batches=batches, rows=rows)


def _problems(outcomes: Mapping[str, Outcome[Any]]) -> dict[str, BatchmergeError]:
    return {key: outcome.problem for key, outcome in outcomes.items() if outcome.problem}
