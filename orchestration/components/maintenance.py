"""Maintenance as a Dagster job with a schedule of its own: one op per table, whose tasks hold the table's pool."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import dagster as dg

from jobs.destinations.base import Destination
from jobs.maintenance.report import Done, combined
from jobs.maintenance.run import LANDING, maintain_landing, maintain_table, maintenance_role
from jobs.members.side_by_side import Outcome
from jobs.pipeline import Pipeline
from jobs.spec.tables import Table
from orchestration import names
from orchestration.components.config import TopicsConfig
from orchestration.components.failures import as_failures
from orchestration.components.launch import Launch
from orchestration.components.progress import engine_log_in_run
from orchestration.executor import step_processes
from orchestration.pauses import read_pauses
from orchestration.pools.pool_waits import PoolWaits
from orchestration.pools.turns import turn
from orchestration.runs import current_run
from orchestration.sensors.busy import maintenance_reason, paused_reason

# Two tables at a time: maintenance leaves room for the pipelines beside it.
AT_ONCE = 2
# Claims the table's pool, and holds it within.
NextTurn = Callable[[], AbstractContextManager[None]]


def maintenance_job(launch: Launch) -> dg.JobDefinition:
    """Named ``<pipeline>_maintenance``.

    The job does not have the tag of the pipeline's own runs, so that these go on beside it. Pools keep a task and the
    table's merges apart, which get their turn between two tasks; a merge that comes from elsewhere wins over a task.
    """
    ops = [_landing_op(launch)]
    skipped = launch.spec.maintenance.skipped(launch.spec.tables)
    ops += [_table_op(launch, n, t) for n, t in enumerate(launch.spec.tables) if t not in skipped]

    @dg.job(
        name=names.maintenance_job(launch.name),
        description=f"Compacts, expires and cleans up the tables of {launch.name}; deletes old landed batches.",
        tags={names.MAINTENANCE_TAG: launch.name, names.WORK_TAG: names.WORK_BEGUN},
        executor_def=step_processes(AT_ONCE),
    )
    def maintenance() -> None:
        for op in ops:
            op()

    return maintenance


def maintenance_schedule(launch: Launch, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Runs the job by `maintenance.cron`."""
    running = launch.spec.maintenance.enabled

    @dg.schedule(
        name=f"{names.maintenance_job(launch.name)}_schedule",
        job=job,
        cron_schedule=launch.spec.maintenance.cron,
        default_status=dg.DefaultScheduleStatus.RUNNING if running else dg.DefaultScheduleStatus.STOPPED,
        description=f"Maintenance of {launch.name}, beside its runs.",
    )
    def tick(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        current_run.end_unwanted(context.instance, launch.name, launch.spec)
        paused = paused_reason(read_pauses(context.instance, launch.name, launch.spec), launch.spec)
        # A run that waits for tables would be joined by one more each time, until no other run may start.
        held = paused or maintenance_reason(context.instance, launch.name)
        return dg.SkipReason(held) if held else dg.RunRequest()

    return tick


def _landing_op(launch: Launch) -> dg.OpDefinition:
    key = names.landing_key(launch.name)

    def work(pipeline: Pipeline) -> tuple[str, str, Iterator[Done]]:
        return pipeline.intermediate.identifier, LANDING, maintain_landing(pipeline)

    return _op(launch, None, key, names.pool(key), work)


def _table_op(launch: Launch, number: int, table: Table) -> dg.OpDefinition:
    """The op of one table, or of the tables that an entry stands for."""

    def work(pipeline: Pipeline) -> tuple[str, str, Iterator[Done]]:
        own = pipeline.table(number)
        destination: Destination = pipeline.destination_of(own)
        skip = own in pipeline.spec.maintenance.skipped(pipeline.tables)
        tasks = iter(()) if skip else maintain_table(pipeline, destination)
        return destination.name, maintenance_role(destination), tasks

    return _op(launch, table, names.table_key(table), names.table_pool(launch.name, launch.spec, table), work)


def _op(
    launch: Launch,
    table: Table | None,
    key: dg.AssetKey,
    pool: str,
    work: Callable[[Pipeline], tuple[str, str, Iterator[Done]]],
) -> dg.OpDefinition:
    options, many = launch.spec.maintenance, launch.spec.many_tables if table else launch.spec.source.for_each

    def tend(pipeline: Pipeline, next_turn: NextTurn = nullcontext) -> list[Done]:
        where, role, tasks = work(pipeline)
        limit, done = options.time_limit_seconds, list[Done]()
        while True:
            with next_turn():
                one = pipeline.in_time(limit, where, lambda: next(tasks, None), role)
            if one is None:
                return done
            done.append(one)

    @dg.op(
        name=f"{names.op_name(launch.name, key)}__maintenance",
        out=dg.Out(dg.Nothing),
    )
    def maintain(context: dg.OpExecutionContext, config: TopicsConfig) -> None:
        with as_failures(launch.spec.retry, context.retry_number), engine_log_in_run(context.log):
            if paused := launch.reason_to_stop(context, table):
                context.log.info("no maintenance: %s", paused)
                return
            next_turn = partial(turn, context, [pool], waits=PoolWaits(context.instance, context.log.info))
            if many:
                members = launch.members(context.run_id, config.topics)
                # A turn is that of the entry's pool.
                outcomes = list(members.in_turns(f"maintenance-{'-'.join(key.path)}", tend, next_turn))
            else:
                outcomes = [Outcome(launch.name, done=tend(launch.open(context.run_id), next_turn))]
            done = [one for outcome in outcomes for one in outcome.done or ()]
            shown = metadata(combined(done) if many else done)
            context.log_event(dg.AssetObservation(key, metadata=shown))
            context.add_output_metadata(shown)
            for problem in [*(o.problem for o in outcomes), *(one.problem for one in done)]:
                if problem:
                    raise problem

    return maintain


def maintained_pools(launch: Launch) -> Collection[str]:
    """The pools that the job's steps hold for their tasks."""
    skipped = launch.spec.maintenance.skipped(launch.spec.tables)
    tables = [table for table in launch.spec.tables if table not in skipped]
    landing = names.pool(names.landing_key(launch.name))
    return {landing, *(names.table_pool(launch.name, launch.spec, table) for table in tables)}


def metadata(done: Sequence[Done]) -> dict[str, int | float | str]:
    """Every count of every task as ``<task>: <count>``; tasks of a second table (kept deletes) begin with its name."""
    shown: dict[str, int | float | str] = {}
    for one in done:
        prefix = one.task if one.table == done[0].table else f"{one.table} {one.task}"
        shown |= {f"{prefix}: {name}": count for name, count in one.counts.items()}
        if said := one.note or (one.problem and str(one.problem)):
            shown[prefix] = said
        shown[f"{prefix}: seconds"] = one.seconds
    return shown
