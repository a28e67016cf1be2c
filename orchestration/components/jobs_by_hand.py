"""Plan, pause, resume and restart as Dagster jobs, for people who have no command line."""

from collections.abc import Callable

import dagster as dg
from pydantic import Field

from jobs.planning.run_plan import members_plan_text, plan_members, plan_run, plan_text
from jobs.spec.tables import Table, table_named
from orchestration import pauses
from orchestration.components.failures import as_failures
from orchestration.components.launch import Launch
from orchestration.components.progress import engine_log_in_run
from orchestration.runs.runs_about import runs_to_end
from orchestration.runs.stopping import stop_runs
from resources.errors import BatchmergeError, ConfigurationError


def plan_job(launch: Launch) -> dg.JobDefinition:
    """Named ``<pipeline>_plan``. Its one step shows the plan and changes nothing; it fails where the run would."""

    @dg.op(name=f"{launch.name}__plan", out=dg.Out(dg.Nothing))
    def show(context: dg.OpExecutionContext) -> None:
        with as_failures(), engine_log_in_run(context.log):
            text, problems = _plan(launch, context.run_id)
            context.log.info(text)
            context.add_output_metadata({"plan": dg.MetadataValue.md(f"```\n{text}\n```")})
            for problem in problems:
                raise problem

    return _job(launch, "plan", f"What the next run of {launch.name} would do. Changes nothing.", show)


def _plan(launch: Launch, run_id: str) -> tuple[str, list[BatchmergeError]]:
    if launch.spec.source.for_each:
        combined = plan_members(launch.members(run_id))
        return members_plan_text(combined), combined.problems
    plan = plan_run(launch.open(run_id))
    return plan_text(plan), plan.problems


class PauseConfig(dg.Config):
    """Options of the three jobs."""

    table: str | None = Field(
        default=None, description="Only this table, named as in the file. Left out: the pipeline."
    )
    by: str | None = Field(default=None, description="Your name, which others see.")


def pause_jobs(launch: Launch) -> list[dg.JobDefinition]:
    """Named ``<pipeline>_pause``, ``<pipeline>_resume`` and ``<pipeline>_restart``."""

    def pause(instance: dg.DagsterInstance, table: Table | None, by: str) -> list[str]:
        return [str(pauses.pause(instance, launch.name, launch.spec, table, by))]

    def resume(instance: dg.DagsterInstance, table: Table | None, by: str) -> list[str]:
        return pauses.resume(instance, launch.name, launch.spec, table, by)

    def restart(instance: dg.DagsterInstance, table: Table | None, by: str) -> list[str]:
        del by
        if table:
            raise ConfigurationError(
                "a run is for all tables of the pipeline, so one alone cannot be restarted", remedy="leave `table` out"
            )
        return stop_runs(instance, runs_to_end(instance, launch.name, launch.spec)) or ["nothing was under way"]

    ends = f"Ends all runs of {launch.name}, hanging ones too, and frees their pools. The next tick starts a run."
    whole = "or one of its tables" if len(launch.spec.tables) > 1 else "or its table"
    return [
        _switch_job(launch, "pause", f"Pauses {launch.name} {whole}: nothing of it starts until it is resumed.", pause),
        _switch_job(launch, "resume", f"Resumes {launch.name} with all of its tables, or one of them.", resume),
        _switch_job(launch, "restart", ends, restart),
    ]


def _switch_job(
    launch: Launch,
    verb: str,
    description: str,
    work: Callable[[dg.DagsterInstance, Table | None, str], list[str]],
) -> dg.JobDefinition:
    @dg.op(name=f"{launch.name}__{verb}", out=dg.Out(dg.Nothing))
    def switch(context: dg.OpExecutionContext, config: PauseConfig) -> None:
        with as_failures():
            named = config.table
            table = None if named is None else table_named(launch.name, launch.spec.tables, named)
            by = config.by or f"somebody in Dagster (run {context.run_id[:8]})"
            for line in work(context.instance, table, by) or ["nothing was paused"]:
                context.log.info(line)

    return _job(launch, verb, description, switch)


def _job(launch: Launch, verb: str, description: str, op: dg.OpDefinition) -> dg.JobDefinition:
    @dg.job(name=f"{launch.name}_{verb}", description=description, executor_def=dg.in_process_executor)
    def job() -> None:
        op()

    return job
