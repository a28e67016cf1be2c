"""`batchmerge demo`: real flights from Kafka into three tables, and the proof that the tables are right."""

from __future__ import annotations

import math
import os
import sys
import time

import click
import dagster as dg
import pyarrow as pa

from jobs.connections_file import load_connections
from jobs.dead_letters.listing import summary
from jobs.pipeline import Pipeline
from jobs.spec.pipeline import PipelineSpec
from orchestration.cli import demo_tables, output
from orchestration.cli.flights import Flights
from orchestration.cli.instance import dagster_instance
from orchestration.cli.job_runs import RunResult, run_job
from orchestration.cli.report import batches, outcome, show_run
from orchestration.files import pipeline_spec
from resources.connections import data_folder
from resources.local import stack
from resources.local.flights.expected import expected_table

PIPELINE = "flights"
_RUNS = 3


@click.command()
@click.option(
    "--size",
    type=click.Choice(["month", "year"]),
    default="month",
    envvar="DEMO",
    show_default=True,
    help="January 2013 (81,210 records), or the year (1,010,906). Also by the environment variable DEMO.",
)
def demo(size: str) -> None:
    """Write the flights that left New York from a Kafka topic into three tables, and check the tables.

    Starts the local services, sends the changes, runs the pipeline until it is caught up, and compares each table with
    a result that a separate program computes from the CSV files. An interrupted demo continues; a finished one starts
    again with an empty topic and empty tables. Exit code 1: a table is wrong.
    """
    began = time.monotonic()
    # The local services only, since the demo empties its topic and its tables.
    home = data_folder()
    os.environ["BATCHMERGE_HOME"], os.environ["BATCHMERGE_CONNECTIONS"] = str(home), str(home / "connections.yaml")
    _say("1. Services")
    spec = _spec_here()
    services = {service.name for service in stack.SERVICES}
    stack.up(home, ["kafka", "spark", *(t.kind for t in spec.tables if t.kind in services)], output.say)
    pipeline = Pipeline(PIPELINE, spec, load_connections())
    flights = Flights(pipeline, month=1 if size == "month" else None)
    _say("2. Changes of flights, in topic `flights`")
    flights.provide(output.say)
    _say(f"3. Runs of the Dagster job `{PIPELINE}`")
    _run_until_caught_up(spec, math.ceil(len(flights.changes) / spec.batch.max_records / _RUNS))
    _say("4. Batches")
    _show_batches(pipeline)
    _say("5. Records that could not be read, kept as dead letters")
    _show_quarantined(pipeline, flights.changes.malformed)
    _say("6. The tables, read by their own systems, compared with the CSV files")
    right = _compare(pipeline, expected_table(flights.month))
    _say(f"7. Three topics, one pipeline file (`{demo_tables.PIPELINE}`), columns and keys as the records have them")
    right &= demo_tables.keep_other_tables()
    seconds = time.monotonic() - began
    _say(f"Done in {seconds:.0f} s. To see it in Dagster: {_ui()}")
    output.result({"right": right, "seconds": round(seconds, 1), "ui": _ui()})
    sys.exit(0 if right else 1)


def _spec_here() -> PipelineSpec:
    """The pipeline's file, without tables whose system cannot run on this machine."""
    spec = pipeline_spec(PIPELINE)
    reasons = {service.name: service.unavailable() for service in stack.SERVICES}
    for table in spec.tables:
        if reason := reasons.get(table.kind):
            output.say(f"leaves out the table in {table.kind}: {reason}")
    return spec.model_copy(update={"tables": [t for t in spec.tables if not reasons.get(t.kind)]})


def _run_until_caught_up(spec: PipelineSpec, max_batches: int) -> None:
    from orchestration.components import KafkaPipeline
    from orchestration.definitions import with_shared

    definitions: dg.Definitions = with_shared(KafkaPipeline(PIPELINE, spec).definitions())
    with dagster_instance() as instance:
        while True:
            began = time.monotonic()
            result = run_job(instance, definitions, PIPELINE, {"max_batches": max_batches})
            if not result.success:
                show_run(result, PIPELINE)
                sys.exit(1)
            _show_line(result, time.monotonic() - began)
            if all(step.metadata.get("lag") == 0 for step in result.steps):
                return


def _show_line(result: RunResult, seconds: float) -> None:
    landing = result.landing
    left = f"{landing.metadata['lag']:,} records left"
    output.say(f"run {result.run_id[:8]}  batch {batches(landing)}: {outcome(landing)}; {seconds:.1f} s, {left}")
    for table in result.tables:
        output.say(f"  {table.asset:<22} {outcome(table)}; {table.metadata.get('seconds', 0):.1f} s")


def _show_batches(pipeline: Pipeline) -> None:
    landed = pipeline.intermediate.landed().batches
    partitions = sorted({tp for b in landed for tp in b.batch.ranges})
    rows = list[tuple[object, ...]]()
    for b in landed:
        ranges = [f"{r.start}..{r.end}" if (r := b.batch.ranges.get(tp)) else "" for tp in partitions]
        counts = b.counts.read, b.counts.landed, b.counts.quarantined
        rows.append((str(b.number), b.batch.commit_id[:8], *ranges, *counts))
    offsets = [f"offsets of {tp}" for tp in partitions]
    output.table(("batch", "commit id", *offsets, "read", "landed", "quarantined"), rows)


def _show_quarantined(pipeline: Pipeline, malformed: dict[str, int]) -> None:
    groups = summary(pipeline)
    rows = [(group.stage, group.kind, group.records, group.first, group.message) for group in groups]
    output.table(("part", "kind", "records", "first", "what is wrong with it"), rows)
    sent = ", ".join(f"{n} {kind}" for kind, n in malformed.items())
    kept = sum(group.records for group in groups)
    output.say(f"quarantined {kept:,}; sent malformed {sum(malformed.values()):,}: {sent}")


def _compare(pipeline: Pipeline, expected: pa.Table) -> bool:
    output.say(f"computed from the CSV files: {expected.num_rows:,} rows")
    every = []
    for destination in pipeline.destinations():
        found = demo_tables.all_rows(pipeline, destination)
        every.append(demo_tables.is_same(found, expected))
        verdict = "every value is the same" if every[-1] else "IT DIFFERS"
        output.say(f"  {destination.table.kind:<11} {found.num_rows:,} rows, {verdict}")
    return all(every)


def _say(title: str) -> None:
    output.say("\n" + click.style(title, bold=True))


def _ui() -> str:
    return f"{os.path.relpath(sys.argv[0])} ui"
