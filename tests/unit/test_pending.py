"""What a merge finds and adapts before it begins."""

from __future__ import annotations

from pathlib import Path

from jobs.iceberg.append import Append
from jobs.landing.publish import publish_batch
from jobs.pipeline import Pipeline
from jobs.protocol import pending
from resources.connections import Connections, KafkaConnection
from resources.iceberg import IcebergCatalog
from tests.kit import batches, specs
from tests.kit.lake import lake_connection


def test_landed_rows_get_the_columns_that_the_file_has_got_since(lake: IcebergCatalog, tmp_path: Path) -> None:
    """A table may be merged alone, or before the landing's step has begun."""
    nowhere = KafkaConnection(kind="kafka", bootstrap_servers="localhost:1")
    connections = Connections({"kafka": nowhere, "lake": lake_connection(tmp_path)}, "test")

    def pipeline(**more: str) -> Pipeline:
        return Pipeline("p", specs.spec(columns={"id": "long", **more}), connections)

    before = pipeline()
    before.intermediate.prepare()
    made = batches.batch(1, meaning_hash=before.spec.meaning_hash)
    publish_batch(Append(lake, before.intermediate.identifier, "p", None), batches.landed_without_rows(made), {})

    after = pipeline(name="string")
    (destination,) = after.destinations()
    assert [batch.number for batch in pending(after, destination).batches] == [1]

    table = lake.require(after.intermediate.identifier)
    head = table.current_snapshot()
    assert table.schema().find_column_name(table.schema().find_field("value.name").field_id) == "value.name"
    assert head
    assert head.schema_id == table.metadata.current_schema_id, "Spark reads a snapshot by its own schema"
