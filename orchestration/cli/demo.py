"""`batchmerge demo`: real flights from Kafka into an Iceberg table, and the proof that the table is right."""

from __future__ import annotations

import math
import os
import sys
import time

import click
import pyarrow as pa
from rich.table import Table

from jobs.pipeline import Pipeline
from orchestration.cli.flights import Flights
from orchestration.cli.instance import dagster_instance
from orchestration.cli.job_runs import RunResult, run_job
from orchestration.cli.report import batches, console, outcome, show_run
from orchestration.files import open_pipeline
from resources.connections import data_folder, load_connections
from resources.local import stack
from resources.local.flights.columns import KEY, TABLE_COLUMNS
from resources.local.flights.expected import expected_table
from sql import render

PIPELINE = "flights"
_RUNS = 5


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
    """Keep an Iceberg table of New York's flights current, from a Kafka topic of changes, through Dagster.

    Starts local services, sends the changes, runs the pipeline in batches until it is caught up, and compares the table
    with an answer computed from the CSV files by other means. An interrupted demo goes on where it was; a finished one
    begins anew with an empty topic and an empty table. Exit code 1: the table is not right.
    """
    began = time.monotonic()
    # Only ever the local services: the demo empties its topic and its tables.
    home = data_folder()
    os.environ["BATCHMERGE_HOME"], os.environ["BATCHMERGE_CONNECTIONS"] = str(home), str(home / "connections.yaml")
    _say("1. Services")
    stack.up(home, ["kafka", "spark"], click.echo)
    pipeline = open_pipeline(PIPELINE, load_connections())
    flights = Flights(pipeline, month=1 if size == "month" else None)
    _say("2. Changes of flights, in topic `flights`")
    flights.provide(click.echo)
    _say("3. Runs of the Dagster job `flights`")
    _run_until_caught_up(math.ceil(flights.records / pipeline.spec.batch.max_records / _RUNS))
    _say("4. Batches")
    _show_batches(pipeline)
    _say("5. Records that could not be read, kept as dead letters")
    _show_quarantined(pipeline, flights.malformed)
    _say("6. The table against the CSV files")
    right = _compare(pipeline, expected_table(flights.month))
    _say(f"Done in {time.monotonic() - began:.0f} s. To see it in Dagster: {_ui()}")
    sys.exit(0 if right else 1)


def _run_until_caught_up(max_batches: int) -> None:
    from orchestration.definitions import defs

    definitions = defs()
    with dagster_instance() as instance:
        while True:
            result = run_job(instance, definitions, PIPELINE, {"max_batches": max_batches})
            if not result.success:
                show_run(result)
                sys.exit(1)
            _show_line(result)
            if all(step.metadata.get("lag") == 0 for step in result.steps):
                return


def _show_line(result: RunResult) -> None:
    landing, table = result.landing, result.tables[0]
    seconds = sum(float(step.metadata.get("seconds", 0)) for step in result.steps)
    click.echo(f"run {result.run_id[:8]}  batch {batches(landing)}: {outcome(landing)}")
    click.echo(f"  {table.asset}: {outcome(table)}; {seconds:.1f} s, {landing.metadata['lag']:,} records left")


def _show_batches(pipeline: Pipeline) -> None:
    landed, _ = pipeline.intermediate.landed()
    partitions = sorted({tp for b in landed for tp in b.batch.ranges})
    table = Table("batch", "commit id", *(f"offsets of {tp}" for tp in partitions), "read", "landed", "quarantined")
    for b in landed:
        ranges = [f"{r.start}..{r.end}" if (r := b.batch.ranges.get(tp)) else "" for tp in partitions]
        counts = [f"{n:,}" for n in (b.counts.read, b.counts.landed, b.counts.quarantined)]
        table.add_row(str(b.number), b.batch.commit_id[:8], *ranges, *counts)
    console().print(table)


def _show_quarantined(pipeline: Pipeline, malformed: dict[str, int]) -> None:
    spark = pipeline.spark("landing", pipeline.intermediate.catalog)
    rows = spark.sql(render("spark", "quarantined", table=pipeline.intermediate.path)).collect()
    table = Table("part", "kind", "records", "first", "what is wrong with it")
    for row in rows:
        table.add_row(row["stage"], row["kind"], f"{row['records']:,}", row["first"], row["message"])
    console().print(table)
    sent = ", ".join(f"{n} {kind}" for kind, n in malformed.items())
    kept = sum(row["records"] for row in rows)
    click.echo(f"quarantined {kept:,}; sent malformed {sum(malformed.values()):,}: {sent}")


def _compare(pipeline: Pipeline, expected: pa.Table) -> bool:
    """Reads the table with pyiceberg, no part of ours, and compares every value."""
    destination = pipeline.spec.tables[0]
    catalog = pipeline.intermediate.catalog
    found = catalog.require(destination.table).scan(selected_fields=tuple(TABLE_COLUMNS)).to_arrow()
    found = found.select(list(TABLE_COLUMNS)).cast(expected.schema).sort_by([(name, "ascending") for name in KEY])
    same = bool(found.combine_chunks().equals(expected.combine_chunks()))
    click.echo(f"in the table {found.num_rows:,} rows, computed from the CSV files {expected.num_rows:,} rows")
    click.echo("every value is the same" if same else "THEY DIFFER")
    return same


def _say(title: str) -> None:
    console().print(f"\n[bold]{title}[/bold]")


def _ui() -> str:
    return f"{os.path.relpath(sys.argv[0])} ui"
