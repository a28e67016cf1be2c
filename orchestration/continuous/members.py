"""The steps of a continuous run, where the pipeline has many tables (`for_each`, `new_tables`).

A tick works only on members that have changed since nothing was left to do for them. A member that fails does not stop
the others: it is tried again, after a longer pause each time.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from dagster import AssetCheckResult

from jobs import protocol
from jobs.batch import LandedBatch
from jobs.circuit_breaker import CircuitBreaker
from jobs.destinations.base import Destination
from jobs.members.landing import land
from jobs.members.side_by_side import Outcome, problems_of
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
    table_results_of_members,
)
from orchestration.components.member_metadata import (
    MergedMember,
    landed_metadata,
    materialize_each,
    merged_metadata,
)
from orchestration.components.merging import TableResult, report, settled
from orchestration.components.suspended_members import SuspendedMembers
from orchestration.continuous.step import ContinuousStep
from orchestration.continuous.topics import Topics
from resources.errors import BatchmergeError


class LandingOfMembers:
    """Lands every topic that has something new."""

    def __init__(self, step: ContinuousStep) -> None:
        self._step, self._members = step, step.members()
        self._topics = Topics(SuspendedMembers(step.context.instance, step.key))
        # By topic: what was landed since the last report, in these seconds, and the batch before.
        self._batches, self._seconds = dict[str, list[LandedBatch]](), 0.0
        self._before = dict[str, LandedBatch]()
        # What Kafka had last, and all topics that appeared since the last report.
        self._seen = Seen([], {})

    @property
    def has_changes(self) -> bool:
        return bool(self._batches)

    def tick(self) -> None:
        members, topics, limit = self._members, self._topics, self._step.launch.spec.batch.time_limit_seconds
        seen, now = with_timeout(limit, f"topics of {members.name}", members.look), time.monotonic()
        due = {m.key: (m, seen.states[m.key]) for m in seen.members if topics.is_due(m.key, seen.states[m.key], now)}
        topics.work_in_turn(due, self._step.turn, lambda some: self._land(replace(seen, members=some, failed={})))
        self._seen = replace(seen, appeared=[*self._seen.appeared, *seen.appeared])

    def _land(self, seen: Seen) -> tuple[set[str], dict[str, BatchmergeError]]:
        """Lands one batch of each of these topics that has something new: no topic delays the others for longer."""
        outcomes, began = list[Outcome[list[LandedBatch]]](), time.monotonic()
        tables = [names.table_key(table) for table in self._step.launch.spec.tables]
        for outcome in land(self._members, seen, 1):
            outcomes.append(outcome)
            if outcome.done and outcome.member:
                self._batches.setdefault(outcome.key, []).extend(outcome.done)
                self._step.require_passed(self._results(outcome.member))
                self._step.ring(tables)
        self._seconds += time.monotonic() - began
        # A topic that has landed a batch may have more to land: it stays due.
        return {outcome.key for outcome in outcomes}, problems_of(outcomes)

    def _results(self, member: Member) -> list[AssetCheckResult]:
        before = self._before.get(member.key)
        own = [*([before] if before else []), *self._batches[member.key]]
        landed = checks.with_others(own, lambda: self._members.open(member).intermediate.landed().batches)
        return checks.landing_results(self._step.key, landed)

    def report(self) -> None:
        step, members, topics = self._step, self._members, self._topics
        problems = {**self._seen.failed, **topics.problems, **topics.suspended.now()}
        results = landing_results_of_topics(
            step.context.instance, members, step.key, self._batches, lambda member, _: self._results(member)
        )
        shown = landed_metadata(self._batches, problems, self._seconds)
        shown |= metadata.appeared("topics", self._seen.appeared, members.name)
        batches = [batch for of_topic in self._batches.values() for batch in of_topic]
        rows = metadata.total(batches).landed
        step.observe_topics(len(batches), rows)
        self._before |= {topic: landed[-1] for topic, landed in self._batches.items()}
        self._batches, self._seconds, self._seen = {}, 0.0, replace(self._seen, appeared=[])
        step.materialize(shown, results, None, batches=len(batches), rows=rows)


class MergingOfMembers:
    """Merges the tables of one entry that lack landed batches."""

    def __init__(self, step: ContinuousStep) -> None:
        assert step.table
        self._step, self._entry, self._members = step, step.table, step.members()
        self._number = step.launch.spec.tables.index(step.table)
        self._topics = Topics(SuspendedMembers(step.context.instance, step.key))
        # Since the last report, by member.
        self._merges = dict[str, MergedBatches]()

    @property
    def has_changes(self) -> bool:
        return bool(self._merges)

    def tick(self) -> None:
        limit, where = self._entry.time_limit_seconds, f"landed batches of {self._members.name}"
        self._topics.work_in_turn(with_timeout(limit, where, self._due), self._step.turn, self._merge)

    def _due(self) -> dict[str, tuple[Member, str]]:
        """Members that have landed a batch since their table was up to date, each with its newest commit id; by key."""

        def newest(pipeline: Pipeline) -> str | None:
            landed = pipeline.intermediate.committed()
            return landed.commit_id if landed else None

        now = time.monotonic()
        return {
            one.key: (one.member, one.done)
            for one in self._members.each("look", self._members.known(), newest)
            if one.member and one.done and self._topics.is_due(one.key, one.done, now)
        }

    def _merge(self, due: list[Member]) -> tuple[set[str], dict[str, BatchmergeError]]:
        """Merges the tables of these members."""
        outcomes, breaker = list[Outcome[MergedTable]](), CircuitBreaker()

        def work(pipeline: Pipeline) -> MergedTable:
            destination = pipeline.destination_of(pipeline.table(self._number))
            table, merge = destination.table, lambda: _try(pipeline, destination)
            limited = partial(pipeline.in_time, table.time_limit_seconds, destination.name, merge)
            return breaker.run(table.connection, destination.name, limited)

        for outcome in self._members.each_merging(f"tables-{self._number}", due, work):
            outcomes.append(outcome)
            if outcome.done and (merged := outcome.done.merged):
                results = checks.table_results(self._step.key, merged.after, merged.batches, merged.batches)
                self._step.require_passed(results)
                self._merges[outcome.key] = merged.since(self._merges.get(outcome.key))
        return {one.key for one in outcomes if one.done and one.done.more}, problems_of(outcomes)

    def report(self) -> None:
        """Reports what was merged since the last materialization, with facts that need a look at the tables."""
        step, members, number, merges = self._step, self._members, self._number, self._merges
        whose = [member for member in members.known() if member.key in merges]
        ends, breaker = EndsByMember.now(members, whose), CircuitBreaker()

        def look(pipeline: Pipeline) -> MergedMember:
            key, table = member_key(pipeline), pipeline.table(number)
            destination = pipeline.destination_of(table)

            def after() -> TableResult:
                return settled(pipeline, destination, merges[key])

            done = breaker.call(table.connection, destination.name, after, table.time_limit_seconds)
            columns = metadata.table_columns(destination.spec, table)
            open_lineage.send_merged(pipeline, destination, columns, done.written)
            shown = report(pipeline, names.table_key(table), table, done, None, ends.of(key))
            return MergedMember(key, table, done, *shown)

        with step.turn():
            outcomes = members.each(f"tables-{number}", whose, look)
            merged, failed = materialize_each(step.context.log_event, outcomes, f"{ends.at:%Y-%m-%d-%H:00}")
            problems = {**self._topics.problems, **failed, **self._topics.suspended.now()}
            results = table_results_of_members(
                step.context.instance, members, step.key, number, merged, ends, {}, breaker, problems
            )
        batches = sum(len(one.batches) for one in merges.values())
        rows = sum(one.merged.counts.changes for one in merges.values())
        self._merges = {}
        step.materialize(merged_metadata(merged, problems), results, None, batches=batches, rows=rows)


def _try(pipeline: Pipeline, destination: Destination) -> MergedTable:
    """Merges a table, if its own trigger does not say "not yet"."""
    merged, landed = protocol.merge(pipeline, destination), pipeline.intermediate.committed()
    if landed is None or protocol.has_no_columns(pipeline) or (merged and merged.after.commit_id == landed.commit_id):
        return MergedTable(destination, merged)
    return MergedTable(destination, merged, more=destination.lacks(landed.commit_id))
