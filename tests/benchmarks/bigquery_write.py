"""Two ways to get rows into BigQuery: a load job of a Parquet file, and a pending write stream of Arrow batches.

Both end with rows that become visible at once. `jobs.destinations.bigquery.loading` says why loads were chosen whatever
the figures are; on the emulator these show what its two paths cost, not what BigQuery's do.
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
import time
import uuid
from collections.abc import Iterator

import grpc
import pyarrow as pa
import pyarrow.parquet as pq
from google.cloud.bigquery import LoadJobConfig, SchemaField, Table
from google.cloud.bigquery_storage_v1 import BigQueryWriteClient, types
from google.cloud.bigquery_storage_v1.services.big_query_write.transports import BigQueryWriteGrpcTransport

from resources.bigquery import BigQuery
from resources.connections import BigQueryConnection
from tests.benchmarks._workload import services

# Requests may hold 10 MB.
_BATCH = 20_000


def rows_to_write(count: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "carrier": ["UA"] * count,
            "note": ["a" * 60] * count,
            "dist": pa.array([n + 0.5 for n in range(count)], pa.float64()),
        }
    )


def load(bigquery: BigQuery, table: str, rows: pa.Table) -> float:
    file = io.BytesIO()
    pq.write_table(rows, file, compression="zstd")
    file.seek(0)
    began = time.monotonic()
    config = LoadJobConfig(source_format="PARQUET", write_disposition="WRITE_APPEND")
    job = bigquery.client.load_table_from_file(file, bigquery.table_id(table), job_config=config)
    assert bigquery.wait(job, 600) is None
    return time.monotonic() - began


def stream(client: BigQueryWriteClient, parent: str, rows: pa.Table) -> float:
    began = time.monotonic()
    made = client.create_write_stream(
        parent=parent, write_stream=types.WriteStream(type_=types.WriteStream.Type.PENDING)
    )

    def requests() -> Iterator[types.AppendRowsRequest]:
        offset = 0
        for batch in rows.to_batches(max_chunksize=_BATCH):
            data = types.AppendRowsRequest.ArrowData(
                rows=types.ArrowRecordBatch(serialized_record_batch=batch.serialize().to_pybytes())
            )
            if not offset:
                data.writer_schema = types.ArrowSchema(serialized_schema=rows.schema.serialize().to_pybytes())
            yield types.AppendRowsRequest(write_stream=made.name, offset=offset, arrow_rows=data)
            offset += batch.num_rows

    for answer in client.append_rows(requests()):
        assert not answer.error.code, answer.error.message
    assert client.finalize_write_stream(name=made.name).row_count == rows.num_rows
    done = client.batch_commit_write_streams(
        types.BatchCommitWriteStreamsRequest(parent=parent, write_streams=[made.name])
    )
    assert not done.stream_errors, done.stream_errors
    return time.monotonic() - began


def compare(bigquery: BigQuery, grpc_endpoint: str, count: int, turns: int) -> None:
    rows = rows_to_write(count)
    kinds = {pa.int64(): "INTEGER", pa.string(): "STRING", pa.float64(): "FLOAT"}
    table = f"bench.write_{uuid.uuid4().hex[:8]}"
    bigquery.create_dataset("bench")
    bigquery.create_table(Table(bigquery.table_id(table), [SchemaField(f.name, kinds[f.type]) for f in rows.schema]))
    client = BigQueryWriteClient(transport=BigQueryWriteGrpcTransport(channel=grpc.insecure_channel(grpc_endpoint)))
    dataset, name = table.split(".")
    parent = client.table_path(bigquery.connection.project, dataset, name)
    loads, streams = [], []
    for _ in range(turns):
        loads.append(load(bigquery, table, rows))
        streams.append(stream(client, parent, rows))
    found = bigquery.read(f"SELECT COUNT(*) AS n FROM `{bigquery.table_id(table)}`", {}, "bench")[0]["n"]
    assert found == 2 * turns * count, found
    by_load, by_stream = statistics.median(loads), statistics.median(streams)
    print(
        f"{count:>9,} rows  load job {by_load:6.2f} s  {count / by_load:>9,.0f} rows/s   pending stream "
        f"{by_stream:6.2f} s  {count / by_stream:>9,.0f} rows/s   median of {turns}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    with services("bigquery") as (_, connections):
        known = connections.get("bigquery", BigQueryConnection)
        assert known.grpc_endpoint
        for count in options.rows:
            compare(BigQuery("bigquery", known), known.grpc_endpoint, count, options.turns)
    return 0


if __name__ == "__main__":
    sys.exit(main())
