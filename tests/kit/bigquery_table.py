"""A BigQuery table that is filled by hand through the product's staging and statements, without Kafka and Spark."""

from __future__ import annotations

import io
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from jobs.changes.columns import landing_schema
from jobs.destinations.bigquery.columns import Column, destination_columns, staging_fields
from jobs.destinations.bigquery.direct_load import takes_landed_rows
from jobs.destinations.bigquery.schema import placed
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.staging import Stager
from jobs.destinations.bigquery.statements import order_column, statement
from jobs.destinations.bigquery.tables import destination_table, evolve, new_staging_table
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Evolution
from resources.bigquery import BigQuery
from tests.kit import specs

Change = tuple[dict[str, Any], dict[str, Any] | None]


@dataclass
class Table:
    """A destination with its staging table, filled by hand."""

    emulator: BigQuery
    name: str
    document: Mapping[str, Any]
    batch: int = 0

    def __post_init__(self) -> None:
        key = self.spec.changes.key
        assert key or self.spec_table.mode == "append"

    @property
    def spec(self) -> PipelineSpec:
        table = {"kind": "bigquery", "table": self.name, **self.document["table"]}
        changes = {"order_by": "arrival", "op": {"field": "op"}, **self.document.get("changes", {})}
        columns = {**self.document["columns"], "op": "string"}
        key = {"columns": ["id"], "source": "value", **self.document.get("key", {})}
        return specs.spec(table, columns=columns, changes={**changes, "key": key})

    @property
    def spec_table(self) -> BigQueryTable:
        return specs.entry(self.spec, BigQueryTable)

    @property
    def columns(self) -> list[Column]:
        return destination_columns(self.spec, self.spec_table)

    @property
    def says_op(self) -> bool:
        return takes_landed_rows(self.spec, self.spec_table, self.columns)

    @property
    def staging_table(self) -> str:
        return f"{self.name}_tmp"

    def prepare(self) -> list[str]:
        columns, done = self.columns, []
        fields = staging_fields(columns, order_column(self.spec, columns), says_op=self.says_op)
        present = self.emulator.find_table(self.name)
        staged = placed(fields, present.schema if present else ())
        if self.emulator.find_table(self.staging_table) is None:
            table_id = self.emulator.table_id(self.staging_table)
            self.emulator.create_table(new_staging_table(table_id, "p", self.name, staged))
        if present is None:
            table_id = self.emulator.table_id(self.name)
            self.emulator.create_table(destination_table(table_id, self.spec_table, columns))
        else:
            done = [
                str(c) for c in evolve(self.emulator, self.name, [c.field for c in columns], self.spec_table.evolve)
            ]
            evolve(self.emulator, self.staging_table, staged, Evolution())
        return done

    def load(self, changes: Sequence[Change], times: int = 1) -> None:
        """Stages one batch of changes (key, value; None for a delete); `times` loads it more than once."""
        self.batch += 1
        found = self.emulator.find_table(self.staging_table)
        assert found is not None
        stager = Stager(self.columns, found.schema, self.spec_table.sanitize_names)
        file = io.BytesIO()
        pq.write_table(pa.Table.from_batches([stager.shape(self._select_list(changes))]), file)
        for _ in range(times):
            job = self.emulator.submit_load(f"test-{uuid.uuid4()}", file, self.staging_table, found.schema, {})
            assert self.emulator.wait(job, 60) is None

    def load_landed(self, folder: str, changes: Sequence[Change]) -> None:
        """Stages one batch from a file as it is landed, with more columns, and deletes that say what they took away."""
        self.batch += 1
        found = self.emulator.find_table(self.staging_table)
        assert found is not None
        rows = [
            {
                "key": key,
                "value": {**key, **(value or {"name": "taken away"})},
                "op": "delete" if value is None else "upsert",
                "partitionTime": datetime(2024, 1, 1, tzinfo=UTC),
                "i": n,
                "batchNumber": self.batch,
                "kafka": {"topic": "t", "partition": 0, "offset": n},
            }
            for n, (key, value) in enumerate(changes)
        ]
        uri = f"{folder}/{uuid.uuid4()}.parquet"
        files, path = FileSystem.from_uri(uri)
        with files.open_output_stream(path) as file:
            pq.write_table(pa.Table.from_pylist(rows, schema=landing_schema(self.spec)), file)
        job = self.emulator.submit_load_from(f"test-{uuid.uuid4()}", [uri], self.staging_table, found.schema, {})
        assert self.emulator.wait(job, 60) is None

    def _select_list(self, changes: Sequence[Change]) -> pa.RecordBatch:
        """What Spark's query gives: one column per destination column, then what every row has."""
        landed = landing_schema(self.spec)
        arrays: dict[str, pa.Array] = {}
        for n, c in enumerate(self.columns):
            struct, field = c.source
            kind = landed.field(struct).type.field(field).type
            values = [(key if struct == "key" else value or {}).get(field) for key, value in changes]
            arrays[f"c{n}"] = pa.array(values, kind)
        order = order_column(self.spec, self.columns)
        if order:
            arrays["orderBy"] = pa.array([{**key, **(value or key)}[order.source[1]] for key, value in changes])
        count = len(changes)
        arrays |= {
            "op": pa.array(["delete" if value is None else "upsert" for _, value in changes]),
            "partitionTime": pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * count, pa.timestamp("us", "UTC")),
            "i": pa.array(range(count), pa.int64()),
            "batchNumber": pa.array([self.batch] * count, pa.int64()),
        }
        return pa.RecordBatch.from_pydict(arrays)

    def merge(self, first: int, last: int) -> None:
        target, source = self.emulator.table_id(self.name), self.emulator.table_id(self.staging_table)
        found = statement(self.spec, self.spec_table, self.columns, target, source, self.says_op)
        values: dict[str, Any] = {"first": first, "last": last}
        if found.bounds:
            bounds = self.emulator.read(found.bounds_text(), values, "test")[0]
            values |= {name: bounds[name] for b in found.bounds for name in (b.low, b.high)}
        job = self.emulator.submit_query(f"test-{uuid.uuid4()}", found.text(), values, {})
        assert self.emulator.wait(job, 60) is None

    def rows(self) -> list[dict[str, Any]]:
        found = self.emulator.read(f"SELECT * FROM `{self.emulator.table_id(self.name)}`", {}, "test")
        return sorted((dict(row) for row in found), key=str)


def put(key: Any, **value: Any) -> Change:
    return {"id": key}, value


def delete(key: Any) -> Change:
    return {"id": key}, None
