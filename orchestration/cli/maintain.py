"""`batchmerge maintain`: one run of a pipeline's maintenance job, in this process."""

from __future__ import annotations

import sys

import click
import dagster as dg

from orchestration.cli import failure_code, output
from orchestration.cli.instance import dagster_instance
from orchestration.cli.job_runs import definitions_of, end_dead, execute, require_free
from orchestration.cli.progress import engine_log
from orchestration.cli.run import launched
from orchestration.components.launch import Launch
from orchestration.components.maintenance import AT_ONCE, maintained_pools
from orchestration.files import pipeline_spec
from orchestration.names import maintenance_job
from orchestration.step_failures import failure_text, failures, is_transient


@click.command()
@click.argument("pipeline")
@click.option("--no-wait", is_flag=True, help="Exit 3 if another run holds a table when it begins.")
def maintain(pipeline: str, no_wait: bool) -> None:
    """Compact, expire and clean up the tables of PIPELINE, beside its runs, as `maintenance` in its file says.

    Exit code 2: something needs a fix; 3: try again later. A task that fails does not stop the others.
    """
    spec = pipeline_spec(pipeline)
    name, topics = launched(pipeline, spec)
    job = definitions_of(name, spec).resolve_job_def(maintenance_job(name))
    config = {"ops": {node.name: {"config": topics} for node in job.nodes}} if topics else {}
    with engine_log(), dagster_instance() as instance:
        if no_wait:
            end_dead(instance)
            require_free(instance, maintained_pools(Launch(name, spec)))
        # A run that takes a table later is waited for: the tasks that were done until then are not lost.
        result = execute(instance, job, {}, config, wait=True, at_once=AT_ONCE)
    _show(result)
    problems = failures(result)
    problem_texts = [failure_text(problem) for problem in problems]
    output.result({"run_id": result.run_id, "done": _counts(result), "problems": problem_texts})
    for line in problem_texts:
        click.echo(line, err=True)
    if problems:
        sys.exit(failure_code(map(is_transient, problems)))


def _show(result: dg.ExecuteInProcessResult) -> None:
    rows = list[tuple[object, ...]]()
    for event in result.get_asset_observation_events():
        asset, shown = event.asset_observation_data.asset_observation, ""
        for name, value in sorted(asset.metadata.items()):
            if name.endswith(": seconds"):
                continue
            key = "/".join(asset.asset_key.path)
            rows.append((key if key != shown else "", name, value.value))
            shown = key
    output.table(("table", "what", "count"), rows, f"run {result.run_id}")


def _counts(result: dg.ExecuteInProcessResult) -> dict[str, dict[str, object]]:
    """Counts and seconds of each task, by asset."""
    seen = [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]
    return {"/".join(one.asset_key.path): {name: v.value for name, v in one.metadata.items()} for one in seen}
