"""Landed batches into the BigQuery emulator: the load of the staging table, and the MERGE, each beside the emulator
alone. BigQuery loads the landed files; or copies of them, which Spark's tasks make in a staging folder; or files of
rows that the tasks shape: those of a table with a metadata column. The bare load sends the same rows as a finished
Parquet file. The bare statement has the same text, and runs on copies of both tables. Half of the keys of a turn were
in the turn before.
"""

from __future__ import annotations

import io
import tempfile
import uuid
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from google.cloud.bigquery import LoadJobConfig, QueryJobConfig, ScalarQueryParameter
from pyiceberg.io import load_file_io

from jobs import protocol
from jobs.destinations.bigquery.destination import BigQueryDestination
from jobs.destinations.bigquery.flush import Flush
from jobs.destinations.bigquery.staging_folder import StagingFolder
from jobs.destinations.bigquery.tables import destination_table, new_staging_table
from jobs.pipeline import Pipeline
from resources.connections import BigQueryConnection, Connections
from tests.benchmarks._report import Measure, Sizes, report
from tests.benchmarks._spent import seconds_of
from tests.benchmarks._workload import fill, pipeline, services
from tests.kit.network import with_connection


def measure(options: Namespace) -> Iterator[Measure]:
    with services("kafka", "spark", "bigquery", home=options.home) as (_, connections):
        known = connections.get("bigquery", BigQueryConnection)
        with tempfile.TemporaryDirectory() as folder:
            reads_nothing = known.model_copy(update={"reads": [], "staging": f"file://{folder}"})
            staging = with_connection(connections, "bigquery", reads_nothing)
            ways: dict[str, tuple[Connections, dict[str, Any]]] = {
                "landed files": (connections, {}),
                "landed files that tasks copy": (staging, {}),
                "rows that tasks shape": (staging, {"metadata_columns": ["offset"]}),
            }
            for mode in ("append", "upsert_delete"):
                for way, (connected, table) in ways.items():
                    yield from flushes(connected, {"mode": mode, **table}, way, options.rows, options.turns)


def flushes(connections: Connections, table: Mapping[str, Any], way: str, rows: int, turns: int) -> Iterator[Measure]:
    mode = table["mode"]
    topic = f"bq-{mode}-{uuid.uuid4().hex[:6]}"
    for turn in range(turns + 1):
        fill(connections, topic, range(turn * rows // 2, turn * rows // 2 + rows), turn)
    tables = [{"kind": "bigquery", **table}]
    p = pipeline(connections, topic, tables, batch={"max_records": rows}, control={"enabled": False})
    (destination,) = p.destinations()
    assert isinstance(destination, BigQueryDestination)
    ours, bare = list[tuple[float, float]](), list[tuple[float, float]]()
    for turn in range(turns + 1):
        list(protocol.land(p, 1))
        destination.prepare()
        copied = f"{destination.table.table}_bare_{turn}"
        _copy(destination, copied)
        merged = protocol.merge(p, destination)
        assert merged is not None
        if turn:  # The first turn makes tables, sessions and workers.
            seconds = merged.merged.seconds
            ours.append((seconds["load"], seconds["merge"]))
            bare.append(_bare(destination, p, Flush(tuple(merged.batches)), copied))
    (load, merge), (bare_load, bare_merge) = (tuple(zip(*found, strict=True)) for found in (ours, bare))
    what = f"{rows:,} rows into the BigQuery emulator, {mode}, from {way}"
    yield Measure(what=f"{what}: load", unit="s", turns=load, beside={"a bare load": bare_load})
    yield Measure(what=f"{what}: MERGE", unit="s", turns=merge, beside={"a bare statement": bare_merge})


def _copy(destination: BigQueryDestination, to: str) -> None:
    """The destination as it is before the merge."""
    bigquery = destination.bigquery
    bigquery.create_table(destination_table(bigquery.table_id(to), destination.table, destination.columns))
    text = f"INSERT INTO `{bigquery.table_id(to)}` SELECT * FROM `{bigquery.table_id(destination.table.table)}`"
    bigquery.change(text, {}, to)


def _bare(destination: BigQueryDestination, p: Pipeline, flush: Flush, target: str) -> tuple[float, float]:
    """Seconds of a bare load and of a bare statement."""
    bigquery, staged = destination.bigquery, f"{target}_staged"
    wanted = new_staging_table(bigquery.table_id(staged), p.name, target, destination.staged)
    bigquery.create_table(wanted)
    loader = destination.loader(p.merge_context(destination), staged)
    file = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        loader.stage(flush, StagingFolder(f"file://{folder}", load_file_io({})), writes_dead_letters=False)
        pq.write_table(pa.concat_tables(map(pq.read_table, Path(folder).iterdir())), file, compression="zstd")
    file.seek(0)
    config = LoadJobConfig(source_format="PARQUET", write_disposition="WRITE_APPEND")

    def bare_load() -> None:
        job = bigquery.client.load_table_from_file(file, bigquery.table_id(staged), job_config=config)
        assert bigquery.wait(job, 600) is None

    row = destination.state.read()
    assert row is not None
    text, _ = destination.bound(loader, row, flush)
    text = text.replace(f"`{bigquery.table_id(destination.table.table)}`", f"`{bigquery.table_id(target)}`")
    bounds = {"first": flush.first.number, "last": flush.last.number}
    values = [ScalarQueryParameter(name, "INT64", number) for name, number in bounds.items()]

    def bare_merge() -> None:
        query = bigquery.client.query(text, job_config=QueryJobConfig(query_parameters=values))
        assert bigquery.wait(query, 600) is None

    found = seconds_of(bare_load), seconds_of(bare_merge)
    for table in (target, staged):
        bigquery.delete_table(table)
    return found


SIZES: Sizes = {"rows": (1_000_000, 10_000), "turns": (3, 1)}

if __name__ == "__main__":
    report(__doc__, measure, SIZES)
