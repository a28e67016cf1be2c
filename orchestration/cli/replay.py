"""`batchmerge replay`: merge again what was landed in some hours."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from orchestration.cli.instance import dagster_instance
from orchestration.cli.job_runs import run_job
from orchestration.cli.report import engine_log
from orchestration.cli.run import finish
from orchestration.files import pipeline_spec

_HOUR = "%Y-%m-%dT%H"


@click.command()
@click.argument("pipeline")
@click.option("--from", "first", required=True, type=click.DateTime([_HOUR, "%Y-%m-%d"]), help="First hour, UTC.")
@click.option("--to", "last", type=click.DateTime([_HOUR, "%Y-%m-%d"]), help="Last hour, UTC. Left out: this hour.")
def replay(pipeline: str, first: datetime, last: datetime | None) -> None:
    """Merge the batches that were landed in these hours again, into every table of PIPELINE.

    Every table is afterwards as if it had never been replayed, and its committed offsets stay. The same as a backfill
    in Dagster, as one run.
    """
    spec = pipeline_spec(pipeline)
    last = last or datetime.now(UTC).replace(tzinfo=None)
    if last < first:
        raise click.UsageError("--to is before --from")
    begin = datetime.strptime(spec.since, "%Y-%m-%d-%H:%M")
    if first < begin:
        raise click.UsageError(f"the pipeline's first hour is {begin:%Y-%m-%dT%H} (`since` in its file)")
    from orchestration.definitions import defs

    hours = (first.strftime("%Y-%m-%d-%H:00"), last.strftime("%Y-%m-%d-%H:00"))
    with engine_log(), dagster_instance() as instance:
        result = run_job(instance, defs(), pipeline, {"mode": "replay"}, hours=hours)
    finish(result)
