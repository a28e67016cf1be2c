"""`batchmerge verify`: do the tables say what was landed?"""

from __future__ import annotations

import sys

import click
from dagster import AssetCheckEvaluation
from rich.table import Table

from orchestration.cli import output
from orchestration.cli.instance import dagster_instance
from orchestration.cli.job_runs import definitions_of, execute
from orchestration.cli.run import launched
from orchestration.files import pipeline_spec
from orchestration.step_failures import failure_text


@click.command()
@click.argument("pipeline")
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    default=10_000,
    show_default=True,
    help="Rows to compare per table, picked at random; 0: all of them.",
)
def verify(pipeline: str, rows: int) -> None:
    """Compare the tables of PIPELINE with what was landed, and with each other. Changes nothing.

    The same as the Dagster job PIPELINE_verify; its results are on the tables' Checks pages too. Exit code 1: a check
    failed; 2: the verification itself could not run.
    """
    spec = pipeline_spec(pipeline)
    name, topics = launched(pipeline, spec)
    job = definitions_of(name, spec).resolve_job_def(f"{name}_verify")
    config = {"ops": {f"{name}__verify": {"config": {"rows": rows, **topics}}}}
    with dagster_instance() as instance:
        result = execute(instance, job, {}, config, wait=True)
    shown, checks = Table("asset", "check", "result", "what was found"), result.get_asset_check_evaluations()
    for check in checks:
        facts = ", ".join(f"{name} {value.value}" for name, value in check.metadata.items())
        parts = [check.description or "", facts]
        shown.add_row(
            "/".join(check.asset_key.path), check.check_name, _word(check.passed), "; ".join(filter(None, parts))
        )
    output.show(shown)
    output.result([_plain(check) for check in checks])
    if not result.success:
        failed = [event for event in result.all_events if event.is_step_failure]
        for event in failed:
            click.echo(failure_text(event), err=True)
        sys.exit(2)
    sys.exit(0 if all(check.passed for check in checks) else 1)


def _plain(check: AssetCheckEvaluation) -> dict[str, object]:
    facts = {name: value.value for name, value in check.metadata.items()}
    named = {"asset": "/".join(check.asset_key.path), "check": check.check_name, "passed": check.passed}
    return {**named, "description": check.description, "facts": facts}


def _word(passed: bool) -> str:
    return "ok" if passed else "FAILED"
