"""How the command line shows a run."""

from __future__ import annotations

import click

from jobs.destinations.refused_rows import list_command, retry_command
from orchestration.cli import output
from orchestration.cli.job_runs import RunResult, StepResult

_LANDED = ("read", "landed", "quarantined", "skipped", "filtered", "gaps")
_MERGED = ("changes", "inserted", "updated", "deleted", "refused", "skipped", "out of range", "stale keys")


def show_run(result: RunResult, pipeline: str) -> None:
    """A table of the run's steps, and what failed."""
    rows = [(s.asset, batches(s), outcome(s), s.metadata.get("seconds"), s.metadata.get("lag")) for s in result.steps]
    output.table(("asset", "batches", "what", "seconds", "lag"), rows, f"run {result.run_id}")
    for step in result.steps:
        if step.problem:
            click.echo(f"{step.asset}: {step.problem}", err=True)
        if refused := step.metadata.get("refused"):
            see = f"see `{list_command(pipeline)}`, correct the table's options, then `{retry_command(pipeline)}`"
            click.echo(f"{step.asset} refuses {refused:,} rows: {see}", err=True)
    output.result(result)


def batches(step: StepResult) -> str:
    """``3``, ``3 to 7``, or nothing."""
    first, last = step.metadata.get("first batch"), step.metadata.get("last batch")
    if first is None:
        return ""
    return str(first) if first == last else f"{first} to {last}"


def outcome(step: StepResult) -> str:
    """What a step did, in one line."""
    if step.problem:
        return "failed"
    if not step.metadata.get("batches"):
        return "nothing new"
    names = _MERGED if "changes" in step.metadata else _LANDED
    return ", ".join(f"{step.metadata[name]:,} {name}" for name in names if name in step.metadata)
