"""Iceberg tables of others with columns of `uuid` and `fixed(n)`, also such that no pipeline file declares."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import DoubleType, FixedType, LongType, NestedField, StringType, UUIDType
from pyspark.sql import SparkSession

from jobs.maintenance.run import maintain_table
from resources.connections import Connections
from tests.destinations.test_keys import key_of
from tests.destinations.test_own_types import OWN, REFS, code, expected, own, read
from tests.kit.engine import catalog
from tests.kit.kinds import KINDS
from tests.kit.story import Story, Target

THEIRS = Schema(
    NestedField(1, "ref", UUIDType(), required=True),
    NestedField(2, "code", FixedType(4), required=True),
    NestedField(3, "id", LongType()),
    NestedField(4, "name", StringType()),
    NestedField(5, "amount", DoubleType()),
    NestedField(6, "opens", StringType()),
    NestedField(7, "more", UUIDType()),
    NestedField(8, "also", FixedType(2)),
)
BUCKETS = PartitionSpec(PartitionField(1, 1000, BucketTransform(3), "ref_bucket"))
MERGE_ON_READ = {"format-version": "2", "write.merge.mode": "merge-on-read"}


@pytest.mark.parametrize(
    ("mode", "properties", "by"),
    [
        ("append", {}, UNPARTITIONED_PARTITION_SPEC),
        ("append", {}, BUCKETS),
        ("upsert_delete", {}, UNPARTITIONED_PARTITION_SPEC),
        ("upsert_delete", MERGE_ON_READ, BUCKETS),
    ],
)
def test_a_table_of_others_is_continued(
    mode: str,
    properties: dict[str, str],
    by: PartitionSpec,
    connections: Connections,
    spark: SparkSession,
    topic: Callable[..., str],
) -> None:
    story = Story.of(topic(), connections, spark, columns=OWN, changes=key_of("ref", "code"))
    first = [own(n, "old", "c") for n in range(8)]
    story.land_each([first, [own(0, "new", "u"), own(1, "gone", "d"), own(8, "more", "c"), own(0, "newer")]])
    table = story.table(Target(KINDS["iceberg"], mode))
    theirs = catalog(connections).create(table.name, THEIRS, by, {"format-version": "2", **properties})
    row = f"'{REFS[1]}', X'{code(1).hex()}', 1, 'theirs', double(1), NULL, NULL, NULL"
    spark.sql(f"INSERT INTO lake.{table.name} VALUES ({row})")
    table.merge_some(1)
    table.merge()
    wanted = [expected(0, "newer"), *(expected(n, "old") for n in range(2, 8)), expected(8, "more")]
    if mode == "append":
        wanted += [expected(0, "new"), expected(0, "old"), expected(1, "old"), (1, "theirs", REFS[1], None, code(1))]
    for _ in ("merged", "replayed"):
        assert read(table) == sorted(wanted, key=lambda row: row[:2])
        assert table.replay(1, 2)
    pipeline = table.engine.edited(maintenance={"compaction": {"min_input_files": 2}}).pipeline
    assert [str(d) for d in maintain_table(pipeline, pipeline.destinations()[0]) if d.problem] == []
    assert read(table) == sorted(wanted, key=lambda row: row[:2])
    if mode != "append":
        assert not table.verify().wrong
    kept = len(THEIRS.fields)
    assert catalog(connections).require(table.name).schema().fields[:kept] == theirs.schema().fields
