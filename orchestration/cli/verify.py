"""`batchmerge verify`: do the tables say what was landed?"""

from __future__ import annotations

import sys

import click
from dagster import AssetCheckEvaluation, ExecuteInProcessResult

from orchestration.cli import failure_code, output
from orchestration.cli.instance import dagster_instance
from orchestration.cli.job_runs import definitions_of, execute
from orchestration.cli.progress import engine_log
from orchestration.cli.run import launched
from orchestration.names import table_pool
from orchestration.step_failures import failure_text, failures, is_transient


@click.command()
@click.argument("pipeline")
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    default=10_000,
    show_default=True,
    help="Rows to compare per table, picked at random; 0: all of them.",
)
@click.option("--no-wait", is_flag=True, help="Exit 3 if another run holds a table when it begins.")
def verify(pipeline: str, rows: int, no_wait: bool) -> None:
    """Compare the tables of PIPELINE with the landed changes, and with each other. Changes nothing.

    Does the same as the Dagster job PIPELINE_verify; the tables' Checks pages show the results too. Merges of a table
    wait while it is compared. Exit code 1: a check failed. If a table could not be compared, 2: you must fix
    something; 3: try again later.
    """
    name, spec, topics = launched(pipeline)
    job = definitions_of(name, spec).resolve_job_def(f"{name}_verify")
    config = {"ops": {f"{name}__verify": {"config": {"rows": rows, **topics}}}}
    with engine_log(), dagster_instance() as instance:
        pools = {table_pool(name, spec, table) for table in spec.tables}
        result = execute(instance, job, {}, config, not no_wait, pools=pools, waits_once_begun=True)
    lines, checks = list[tuple[str, ...]](), result.get_asset_check_evaluations()
    for check in checks:
        facts = ", ".join(f"{name} {value.value}" for name, value in check.metadata.items())
        found = "; ".join(filter(None, [check.description, facts]))
        lines.append(("/".join(check.asset_key.path), check.check_name, "ok" if check.passed else "FAILED", found))
    if lines:
        output.table(("asset", "check", "result", "what was found"), lines)
    output.result([_plain(check) for check in checks])
    for event in failures(result):
        click.echo(failure_text(event), err=True)
    sys.exit(exit_code(result))


def exit_code(result: ExecuteInProcessResult) -> int:
    """A failed check decides, whatever else could not be compared."""
    if not all(check.passed for check in result.get_asset_check_evaluations()):
        return 1
    if result.success:
        return 0
    return failure_code(map(is_transient, failures(result)))


def _plain(check: AssetCheckEvaluation) -> dict[str, object]:
    facts = {name: value.value for name, value in check.metadata.items()}
    named = {"asset": "/".join(check.asset_key.path), "check": check.check_name, "passed": check.passed}
    return {**named, "description": check.description, "facts": facts}
