"""The demo's tables, read by their own systems and compared with a result that is computed independently; and its
second pipeline: many topics in one file, with columns and keys as the records have them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import pyarrow as pa

from jobs.connections_file import load_connections
from jobs.destinations.base import Destination
from jobs.destinations.row_values import comparable
from jobs.members.members import Members
from jobs.pipeline import Pipeline
from orchestration.cli import output
from orchestration.cli.instance import dagster_instance
from orchestration.cli.job_runs import definitions_of, run_job
from orchestration.cli.report import show_run
from orchestration.files import pipeline_spec
from resources.connections import KafkaConnection
from resources.local.flights.columns import KEY, TABLE_COLUMNS
from resources.local.flights.other_tables import rows, send

PIPELINE = "nyc"


def all_rows(pipeline: Pipeline, destination: Destination) -> pa.Table:
    """All rows of a table, in its declared columns."""
    spark = pipeline.merge_context(destination).spark
    with destination.read(lambda: spark).rows(spark, 0) as found:
        return found.toArrow()


def is_same(found: pa.Table, expected: pa.Table) -> bool:
    """Whether all values of all rows are the same, in any order of rows and under any system's names of types."""
    ordered = found.select(list(TABLE_COLUMNS)).cast(expected.schema).sort_by([(name, "ascending") for name in KEY])
    return bool(ordered.combine_chunks().equals(expected.combine_chunks()))


def keep_other_tables() -> bool:
    """Sends the rows, runs the pipeline once, and compares every value; returns whether all are right."""
    spec, connections = pipeline_spec(PIPELINE), load_connections()
    kafka = connections.get(spec.source.connection, KafkaConnection)
    output.say(f"{send(kafka.bootstrap_servers, spec.source.topics):,} records into {', '.join(spec.source.topics)}")
    with dagster_instance() as instance:
        result = run_job(instance, definitions_of(PIPELINE, spec), PIPELINE, {})
    if not result.success:
        show_run(result, PIPELINE)
        sys.exit(1)
    every, members = [], Members(PIPELINE, spec, connections)
    for member in members.known():
        pipeline = members.open(member)
        destination = pipeline.resolved(pipeline.destinations()[0])
        table = destination.table
        found, expected = all_rows(pipeline, destination), rows(table.table.rsplit(".", 1)[-1])
        every.append(_ordered(found.to_pylist()) == _ordered(expected))
        verdict = "every value is the same" if every[-1] else "IT DIFFERS"
        output.say(f"  {table.table:<13} {found.num_rows:,} rows of {found.num_columns} columns, {verdict}")
    return all(every)


def _ordered(found: Sequence[Mapping[str, object]]) -> list[str]:
    return sorted(str(comparable(row)) for row in found)
