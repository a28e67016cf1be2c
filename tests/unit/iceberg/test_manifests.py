"""Commits of single files: manifests do not pile up, metadata is not read again, and every snapshot counts its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cachetools import LRUCache
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from jobs.batch import Batch, CommittedState, Counts, LandedBatch
from jobs.iceberg.append import Append
from jobs.iceberg.attempt import added_files
from jobs.iceberg.file_writer import writing
from jobs.iceberg.history import PipelineBranch, state_properties
from jobs.iceberg.landed_batches import landed_batches
from jobs.iceberg.manifest_entries import live_entries
from jobs.iceberg.staging import live_files, stage
from jobs.landed_properties import landed_to_properties
from jobs.offsets import OffsetRange
from jobs.watermark import Watermark
from resources.errors import ConfigurationError
from resources.iceberg import IcebergCatalog
from tests.kit.batches import P0, TOPIC_IDS
from tests.kit.lake import lake, with_metadata

NAME = "n.t"
SCHEMA = Schema(NestedField(1, "i", LongType(), required=False))


def append(catalog: IcebergCatalog, number: int) -> int:
    """Batch `number`, of one row; its snapshot."""
    table = catalog.require(NAME)
    committed = PipelineBranch("p").history(table).committed
    commit = Append(catalog, NAME, "p", committed)
    with writing(commit.files) as writer:
        writer.write({"i": pa.array([number])})
    commit.add(writer.written)
    before = committed.commit_id if committed else None
    ranges = {P0: OffsetRange(number - 1, number)}
    batch = Batch("p", number, f"c{number}", before, ranges, TOPIC_IDS, 0, "hash")
    landed = LandedBatch(batch, Counts(read=1, landed=1), Watermark(), 0)
    properties = state_properties(CommittedState.after(landed), "main")
    return commit.publish_append(landed_to_properties(landed), properties)


def manifests(table: Table) -> list[ManifestFile]:
    head = table.current_snapshot()
    assert head is not None
    return head.manifests(table.io)


def test_manifests_stay_apart_where_the_table_says_so(tmp_path: Path) -> None:
    catalog = lake(tmp_path)
    catalog.create(NAME, SCHEMA, properties={"commit.manifest-merge.enabled": "false"})
    for number in range(1, 21):
        append(catalog, number)
    assert len(manifests(catalog.require(NAME))) == 20


def lake_whose_partition_column_was_dropped(version: str, tmp_path: Path) -> IcebergCatalog:
    """After 17 batches, each with a manifest of its own."""
    catalog = lake(tmp_path)
    by_x = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "x"))
    apart = {"format-version": version, "commit.manifest-merge.enabled": "false"}
    catalog.create(NAME, Schema(*SCHEMA.fields, NestedField(2, "x", LongType(), required=False)), by_x, apart)
    for number in range(1, 18):
        append(catalog, number)
    with catalog.require(NAME).transaction() as merging:
        merging.set_properties({"commit.manifest-merge.enabled": "true"})
    with catalog.require(NAME).update_spec() as spec:
        spec.remove_field("x")
    with catalog.require(NAME).update_schema() as schema:
        schema.delete_column("x")
    return catalog


@pytest.mark.parametrize("version", ["1", "2"])
def test_manifests_of_a_partition_column_that_was_dropped_are_merged(version: str, tmp_path: Path) -> None:
    catalog = lake_whose_partition_column_was_dropped(version, tmp_path)
    append(catalog, 18)
    table = catalog.require(NAME)
    assert len(manifests(table)) == 2
    assert sorted(table.scan().to_arrow()["i"].to_pylist()) == list(range(1, 19))


@pytest.mark.parametrize("version", ["1", "2"])
def test_manifests_of_a_partition_column_of_which_no_schema_is_left_stay(version: str, tmp_path: Path) -> None:
    """Another engine has removed the older schemas (`clean_expired_metadata`): nothing says the column's type."""
    metadata = lake_whose_partition_column_was_dropped(version, tmp_path).require(NAME).metadata
    present = json.loads(metadata.schema().model_dump_json())
    catalog = with_metadata(tmp_path, NAME, {"schemas": [present]})
    append(catalog, 18)
    table = catalog.require(NAME)
    assert len(manifests(table)) == 18
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    assert sorted(pq.read_table(path)["i"][0].as_py() for path in files) == list(range(1, 19))
    for manifest in manifests(table):
        with Path(manifest.manifest_path.removeprefix("file://")).open("rb") as file:
            assert len(list(fastavro.reader(file))) == 1, "as a reader in Java sees it"


def test_number_of_manifests_does_not_grow_with_each_batch(tmp_path: Path) -> None:
    catalog = lake(tmp_path)
    catalog.create(NAME, SCHEMA)
    snapshots, counts = [], []
    for number in range(1, 281):
        snapshots.append(append(catalog, number))
        table = catalog.require(NAME)
        counts.append(len(manifests(table)))
    assert max(counts) <= 3 * 16
    assert counts[15:17] == [16, 2]
    assert sorted(table.scan().to_arrow()["i"].to_pylist()) == list(range(1, 281)), "merged manifests hold every file"
    for number in (1, 16, 17, 256, 257, 280):
        (file,) = added_files(table, snapshots[number - 1])
        assert file.record_count == 1
    known = landed_batches(table, "p")
    assert [(b.number, b.snapshot_id) for b in known.batches] == list(enumerate(snapshots, 1))
    entries = [e for m in manifests(table) for e in m.fetch_manifest_entry(table.io)]
    assert {e.snapshot_id: e.sequence_number for e in entries} == {s: n for n, s in enumerate(snapshots, 1)}


def test_a_manifest_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a table that grows by a file a batch, each merge reads what is new."""
    catalog, read = lake(tmp_path), list[str]()
    catalog.create(NAME, SCHEMA)
    fetch = ManifestFile.fetch_manifest_entry

    def counted(manifest: ManifestFile, *arguments: Any, **named: Any) -> list[ManifestEntry]:
        read.append(manifest.manifest_path)
        return fetch(manifest, *arguments, **named)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", counted)
    for number in range(1, 41):
        snapshot, table = append(catalog, number), catalog.require(NAME)
        found = [file.record_count for file in live_files(table, snapshot, ManifestContent.DATA)]
        assert found == [1] * number
        assert [file.record_count for file in added_files(table, snapshot)] == [1]
    assert len(read) == len(set(read)), "none twice"
    kept = live_entries.cache
    assert isinstance(kept, LRUCache)
    assert kept.currsize == sum(1 + len(entries) for entries in kept.values()), "each entry counts"


def test_a_metadata_file_is_read_once_and_by_its_writer_never(tmp_path: Path) -> None:
    writes, reads = lake(tmp_path), lake(tmp_path)
    writes.create(NAME, SCHEMA)
    for number in (1, 2):
        snapshot = append(writes, number)
        file = Path(writes.require(NAME).metadata_location.removeprefix("file://"))
        table = reads.require(NAME)
        assert table.metadata.current_snapshot_id == snapshot, "what others commit is seen at once"
        written = file.read_bytes()
        file.unlink()
        assert writes.require(NAME).metadata == reads.require(NAME).metadata == table.metadata
        file.write_bytes(written)


def test_files_of_such_a_partition_are_not_removed(tmp_path: Path) -> None:
    metadata = lake_whose_partition_column_was_dropped("2", tmp_path).require(NAME).metadata
    present = json.loads(metadata.schema().model_dump_json())
    table = with_metadata(tmp_path, NAME, {"schemas": [present]}).require(NAME)
    file = next(iter(table.scan().plan_files())).file
    with pytest.raises(ConfigurationError, match="files of the partition spec 0 cannot be removed"):
        stage(table, "main", [], [], [file], {})
