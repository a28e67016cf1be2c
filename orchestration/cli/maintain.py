"""`batchmerge maintain`: one run of a pipeline's maintenance job, in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click
from dagster import ExecuteInProcessResult

from orchestration.cli import failure_code, output
from orchestration.cli.instance import dagster_instance
from orchestration.cli.job_runs import definitions_of, execute
from orchestration.cli.progress import engine_log
from orchestration.cli.run import launched
from orchestration.components.launch import Launch
from orchestration.components.maintenance import AT_ONCE, maintained_pools
from orchestration.names import maintenance_job
from orchestration.step_failures import failure_text, failures, is_transient


@click.command()
@click.argument("pipeline")
@click.option("--no-wait", is_flag=True, help="Exit 3 if another run holds a table when it begins.")
def maintain(pipeline: str, no_wait: bool) -> None:
    """Compact, expire and clean up the tables of PIPELINE, as `maintenance` in its file says. Its runs go on.

    Exit code 2: you must fix something; 3: try again later. A task that fails does not stop the others.
    """
    name, spec, topics = launched(pipeline)
    job = definitions_of(name, spec).resolve_job_def(maintenance_job(name))
    config = {"ops": {node.name: {"config": topics} for node in job.nodes}} if topics else {}
    with engine_log(), dagster_instance() as instance:
        pools = maintained_pools(Launch(name, spec))
        result = execute(instance, job, {}, config, not no_wait, pools=pools, at_once=AT_ONCE, waits_once_begun=True)
    done = _done(result)
    rows = [row for asset, counts in done.items() for row in _rows(asset, counts)]
    output.table(("table", "what", "count"), rows, f"run {result.run_id}")
    problems = failures(result)
    problem_texts = [failure_text(problem) for problem in problems]
    output.result({"run_id": result.run_id, "done": done, "problems": problem_texts})
    for line in problem_texts:
        click.echo(line, err=True)
    if problems:
        sys.exit(failure_code(map(is_transient, problems)))


def _rows(asset: str, counts: Mapping[str, object]) -> Iterator[tuple[object, ...]]:
    for name in sorted(name for name in counts if not name.endswith(": seconds")):
        yield asset, name, counts[name]
        asset = ""


def _done(result: ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    """Counts and seconds of each task, by asset; those of all tries of a step together."""
    done: dict[str, dict[str, Any]] = {}
    for event in result.get_asset_observation_events():
        observed = event.asset_observation_data.asset_observation
        own = done.setdefault("/".join(observed.asset_key.path), {})
        for name, shown in observed.metadata.items():
            is_number = isinstance(shown.value, (int, float))
            own[name] = own.get(name, 0) + shown.value if is_number else shown.value
    return done
