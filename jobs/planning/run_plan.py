"""Finds out what the next run of a pipeline would do, without changing anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jobs import protocol
from jobs.batch import Batch
from jobs.behind import lag_behind
from jobs.destinations.base import Destination
from jobs.destinations.registry import kind_of, warnings_of
from jobs.landing.sample import keyless
from jobs.members.members import Members
from jobs.offsets import starts, total
from jobs.pipeline import Pipeline
from jobs.planning.not_known_yet import not_known_yet, statement_of
from jobs.planning.plan import TopicState
from jobs.planning.sampled_pipeline import with_sampled_columns, with_sampled_names
from jobs.spec.added_columns import OTHER_COLUMN, Additions, adds_columns
from jobs.spec.open_key import key_is_open
from resources.errors import BatchmergeError


@dataclass(frozen=True)
class TablePlan:
    """The plan for one destination table.

    Attributes:
        batches: numbers of the landed batches that it lacks, without the next one to be landed.
        unknown: the columns that only the first records give; no table is made before.
        steps: what would be created or changed first.
        sql: the statement that writes the changes; empty if it is not SQL.
        problem: why its part of the run would fail.
        warnings: columns for which some rows will certainly be refused, options without effect.
    """

    name: str
    mode: str
    committed: int | None = None
    batches: Sequence[int] = ()
    changes: int = 0
    unknown: Sequence[str] = ()
    steps: Sequence[str] = ()
    sql: str = ""
    commit: str = ""
    problem: BatchmergeError | None = None
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class RunPlan:
    """What the next run would land and merge.

    Attributes:
        batch: the next batch; None if Kafka has nothing new. The run will make another commit id.
        waiting: records in Kafka that are not landed.
        problem: why landing would fail.
    """

    pipeline: str
    landing: str
    committed: int | None = None
    batch: Batch | None = None
    waiting: int = 0
    steps: Sequence[str] = ()
    problem: BatchmergeError | None = None
    tables: Sequence[TablePlan] = field(default_factory=list)

    @property
    def problems(self) -> list[BatchmergeError]:
        return [p for p in (self.problem, *(t.problem for t in self.tables)) if p]

    @property
    def records(self) -> int:
        """Upper bound of the records in the next batch."""
        return total(self.batch.ranges) if self.batch else 0


def plan_run(pipeline: Pipeline, topics: TopicState | None = None) -> RunPlan:
    """Plans from Kafka, the intermediate table and every destination; changes nothing. One table's error is its own.

    Args:
        topics: what Kafka has for the pipeline's topics; None: ask for it.
    """
    columns: list[str] = []
    try:
        if adds_columns(pipeline.spec) or key_is_open(pipeline.spec):
            pipeline, found = with_sampled_columns(pipeline)
            columns = _sampled(found)
        planned = protocol.plan(pipeline, topics)
        if planned.batch and key_is_open(pipeline.spec):
            raise keyless(pipeline.name)
        if planned.batch and pipeline.spec.new_tables:
            pipeline = with_sampled_names(pipeline, planned.batch.number)
    except BatchmergeError as problem:
        tables = [_plan_table(pipeline, destination) for destination in pipeline.destinations()]
        return RunPlan(pipeline.name, pipeline.intermediate.identifier, problem=problem, tables=tables)
    tables = [_plan_table(pipeline, destination) for destination in pipeline.destinations()]
    create = [f"create {pipeline.intermediate.identifier}"] if not pipeline.intermediate.exists() else []
    return RunPlan(
        pipeline.name,
        pipeline.intermediate.identifier,
        committed=planned.committed.batch_number if planned.committed else None,
        batch=planned.batch,
        waiting=lag_behind(planned.topics.stable, None, starts(planned.batch.ranges)) if planned.batch else 0,
        steps=[*create, *columns],
        tables=tables,
    )


@dataclass(frozen=True)
class MembersPlan:
    """What the next run of a pipeline with `for_each` would do.

    Attributes:
        failed: topics that cannot be read or cannot become a member, and why.
        appeared: topics that are new.
    """

    pipeline: str
    plans: Sequence[RunPlan]
    failed: Mapping[str, BatchmergeError]
    appeared: Sequence[str] = ()

    @property
    def problems(self) -> list[BatchmergeError]:
        return [*self.failed.values(), *(problem for plan in self.plans for problem in plan.problems)]


def plan_members(members: Members) -> MembersPlan:
    """Plans all members from one request to Kafka, and every table. Raises BatchmergeError if Kafka does not answer."""
    seen = members.look()
    outcomes = list(members.each_seen("plan", seen, plan_run))
    plans = sorted((o.done for o in outcomes if o.done), key=lambda plan: plan.pipeline)
    failed = {**seen.failed, **{o.key: o.problem for o in outcomes if o.problem}}
    return MembersPlan(members.name, plans, failed, seen.appeared)


def members_plan_text(plan: MembersPlan, with_sql: bool = True) -> str:
    """The plans of topics that have something to do, for people, and the number of those that have nothing."""
    busy = [one for one in plan.plans if one.batch or one.problems or any(t.batches or t.steps for t in one.tables)]
    lines = [plan_text(one, with_sql) for one in busy]
    lines += [f"topic {topic} FAILS: {problem}" for topic, problem in sorted(plan.failed.items())]
    lines += [f"new topics: {', '.join(plan.appeared)}"] if plan.appeared else []
    idle = len(plan.plans) - len(busy)
    return "\n".join([*lines, f"{plan.pipeline}: {idle} of {len(plan.plans)} topics have nothing new"])


def _sampled(found: Additions) -> list[str]:
    """The new columns by the newest records, for people; the batch's own records will decide."""
    added = [f"the newest records bring column {name} {kind}" for name, kind in found.added.items()]
    refused = [f"the field {name} would make dead letters: {reason}" for name, reason in found.refused.items()]
    bad = [f"{records} of the newest records would be dead letters: {why}" for why, records in found.bad.items()]
    other = [OTHER_COLUMN] if found.of_another_type else []
    return [*added, *refused, *bad, *other]


def _plan_table(pipeline: Pipeline, destination: Destination) -> TablePlan:
    name, mode, unknown = destination.name, destination.table.mode, not_known_yet(destination.spec)
    try:
        committed = destination.committed()
        landed = pipeline.intermediate.landed()
        waiting = protocol.waiting_batches(destination, committed, landed)
        pipeline.check_meaning(committed, waiting)
        return TablePlan(
            name,
            mode,
            committed=committed.batch_number if committed else None,
            batches=[b.number for b in waiting],
            changes=sum(b.counts.landed for b in waiting),
            unknown=unknown,
            steps=[] if unknown else destination.prepare(dry_run=True),
            sql=statement_of(destination.spec, destination.table),
            commit=kind_of(destination.table).capabilities.commit,
            warnings=[
                *warnings_of(destination.spec, destination.table),
                *([] if unknown else destination.layout_differences()),
            ],
        )
    except BatchmergeError as problem:
        return TablePlan(name, mode, problem=problem)


def plan_text(plan: RunPlan, with_sql: bool = True) -> str:
    """The plan for people."""
    lines = [f"pipeline {plan.pipeline}", f"  landing into {plan.landing}: {_landing(plan)}"]
    lines += [f"    first: {step}" for step in plan.steps]
    if plan.batch:
        lines += [f"    {tp}: offsets {r.start} to {r.end}" for tp, r in sorted(plan.batch.ranges.items())]
    for table in plan.tables:
        lines.append(f"  {table.name} ({table.mode}): {_table(table, plan.batch)}")
        lines += [f"    not known yet: {one}" for one in table.unknown]
        lines += [f"    first: {step}" for step in table.steps]
        lines += [f"    warning: {warning}" for warning in table.warnings]
        if table.commit:
            lines.append(f"    commit: {table.commit}")
        if with_sql and table.sql:
            lines += [f"      {line}" for line in table.sql.splitlines() if line.strip()]
    return "\n".join(lines)


def _landing(plan: RunPlan) -> str:
    if plan.problem:
        return f"FAILS: {plan.problem}"
    if plan.batch is None:
        return f"nothing new; at batch {plan.committed or 0}"
    return f"batch {plan.batch.number} of up to {plan.records:,} records; {plan.waiting:,} wait in Kafka"


def _table(table: TablePlan, batch: Batch | None) -> str:
    if table.problem:
        return f"FAILS: {table.problem}"
    at = f"at batch {table.committed}" if table.committed else "without a batch yet"
    numbers = [*map(str, table.batches), *([str(batch.number)] if batch else [])]
    if not numbers:
        return f"{at}; nothing to merge"
    return f"{at}; merges batch {', '.join(numbers)}"
