"""Pause, resume and restart as Dagster jobs, for people who have no command line."""

from collections.abc import Callable

import dagster as dg
from pydantic import Field

from jobs.spec.tables import Table, table_named
from orchestration import pauses
from orchestration.components.failures import as_failures
from orchestration.components.launch import Launch
from orchestration.runs.runs_about import runs_to_end
from orchestration.runs.stopping import stop_runs
from resources.errors import ConfigurationError


class PauseConfig(dg.Config):
    """Options of the three jobs."""

    table: str | None = Field(default=None, description="Only this table, as in the file. Left out: the pipeline.")
    by: str | None = Field(default=None, description="Your name, for others to see.")


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

    ends = f"Ends all runs of {launch.name}, also hanging ones, and frees their pools. The next tick starts a run."
    whole = "or one of its tables" if len(launch.spec.tables) > 1 else "or its table"
    return [
        _job(launch, "pause", f"Pauses {launch.name} {whole}: nothing of it starts until it is resumed.", pause),
        _job(launch, "resume", f"Resumes {launch.name} with all of its tables, or one of them.", resume),
        _job(launch, "restart", ends, restart),
    ]


def _job(
    launch: Launch,
    verb: str,
    description: str,
    work: Callable[[dg.DagsterInstance, Table | None, str], list[str]],
) -> dg.JobDefinition:
    @dg.op(name=f"{launch.name}__{verb}", out=dg.Out(dg.Nothing))
    def switch(context: dg.OpExecutionContext, config: PauseConfig) -> None:
        with as_failures():
            table = table_named(launch.name, launch.spec.tables, config.table) if config.table else None
            by = config.by or f"somebody in Dagster (run {context.run_id[:8]})"
            for line in work(context.instance, table, by) or ["nothing was paused"]:
                context.log.info(line)

    @dg.job(name=f"{launch.name}_{verb}", description=description, executor_def=dg.in_process_executor)
    def job() -> None:
        switch()

    return job
