"""The plan of a pipeline's next run, as a Dagster job: for people who have no command line."""

import dagster as dg

from jobs.planning.run_plan import members_plan_text, plan_members, plan_run, plan_text
from orchestration.components.failures import as_failures
from orchestration.components.launch import Launch
from orchestration.components.progress import engine_log_in_run
from resources.errors import BatchmergeError


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

    @dg.job(
        name=f"{launch.name}_plan",
        description=f"What the next run of {launch.name} would do. Changes nothing.",
        executor_def=dg.in_process_executor,
    )
    def plan() -> None:
        show()

    return plan


def _plan(launch: Launch, run_id: str) -> tuple[str, list[BatchmergeError]]:
    if launch.spec.source.for_each:
        combined = plan_members(launch.members(run_id))
        return members_plan_text(combined), combined.problems
    plan = plan_run(launch.open(run_id))
    return plan_text(plan), plan.problems
