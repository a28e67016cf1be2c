"""What is remembered of an Iceberg catalog is what its files say: tables side by side, and other processes' commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from jobs.iceberg.schema import iceberg_schema
from jobs.iceberg.state_file import StateFile
from resources.iceberg import IcebergCatalog
from tests.kit.lake import files_in, lake, lake_connection

ROWS = pa.table({"n": pa.array([1, 2, 3], pa.int64()), "text": ["a", "b", None]})


def make(catalog: IcebergCatalog, name: str, by: str | None = None) -> Table:
    schema = iceberg_schema(ROWS.schema)
    if by is None:
        return catalog.create(name, schema)
    field = PartitionField(schema.find_field(by).field_id, 1000, IdentityTransform(), by)
    return catalog.create(name, schema, PartitionSpec(field))


def entries(table: Table) -> list[dict[str, Any]]:
    """The partitions and rows of its data files, as its manifests say."""
    found = table.inspect.files().select(["record_count", *(["partition"] if len(table.spec().fields) else [])])
    return sorted(found.to_pylist(), key=str)


def test_tables_with_different_partitions_keep_their_own(tmp_path: Path) -> None:
    catalog = lake(tmp_path)
    tables = {by: make(catalog, f"n.by_{by}", by) for by in ("n", "text")} | {None: make(catalog, "n.plain")}
    for _ in range(2):
        for table in tables.values():
            table.append(ROWS)
    found = {by: entries(catalog.require(".".join(table.name()))) for by, table in tables.items()}
    assert found[None] == [{"record_count": 3}] * 2
    for by in ("n", "text"):
        expected = [{"record_count": 1, "partition": {by: value}} for value in ROWS[by].to_pylist()]
        assert found[by] == sorted(expected * 2, key=str)
        assert all(row["partition"].keys() == {by} for row in found[by])


def test_schemas_of_manifests_are_worked_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, seen = lake(tmp_path), list[object]()

    def read(conversion: AvroSchemaConversion, schema: Any) -> Any:
        seen.append(schema)
        return convert(conversion, schema)

    convert = AvroSchemaConversion.avro_to_iceberg
    monkeypatch.setattr(AvroSchemaConversion, "avro_to_iceberg", read)
    for number in range(5):
        make(catalog, f"n.t{number}").append(ROWS)
        assert entries(catalog.require(f"n.t{number}")) == [{"record_count": 3}]
    assert len(seen) <= 2, "of manifests, and of lists of them"


def test_commits_of_elsewhere_are_seen_and_what_is_written_here_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, connection = lake(tmp_path), lake_connection(tmp_path)
    make(here, "n.t").append(ROWS)
    there = load_catalog("lake", type="sql", uri=connection.uri, warehouse=connection.warehouse)
    there.load_table("n.t").append(ROWS)
    assert here.require("n.t").scan().to_arrow().num_rows == 6
    read = FromInputFile.table_metadata

    def no_more(*_: Any) -> Any:
        raise AssertionError("it is known")

    monkeypatch.setattr(FromInputFile, "table_metadata", no_more)
    here.require("n.t").append(ROWS)
    assert len(here.require("n.t").metadata.snapshots) == 3
    monkeypatch.setattr(FromInputFile, "table_metadata", read)
    there.drop_table("n.t")
    assert here.load("n.t") is None


def test_metadata_of_hundreds_of_tables_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(60):
        make(lake(tmp_path), f"n.t{number}")
    catalog, reads = lake(tmp_path), list[object]()

    def read(*arguments: Any, **named: Any) -> Any:
        reads.append(arguments)
        return real(*arguments, **named)

    real = FromInputFile.table_metadata
    monkeypatch.setattr(FromInputFile, "table_metadata", read)
    for _ in range(3):
        for number in range(60):
            assert catalog.require(f"n.t{number}").name() == ("n", f"t{number}")
    assert len(reads) == 60


def test_a_commit_copies_nothing_of_earlier_snapshots(tmp_path: Path) -> None:
    """Which would take the longer, the more batches there are."""
    catalog = lake(tmp_path)
    make(catalog, "n.t").append(ROWS)
    before = catalog.require("n.t")
    (snapshot,) = before.metadata.snapshots
    state = StateFile(f"{before.location()}/metadata/state.puffin", 10, 4)
    catalog.commit(before, [], [state.registered(snapshot.snapshot_id)])
    one = catalog.require("n.t").metadata
    catalog.commit(catalog.require("n.t"), [], [SetPropertiesUpdate(updates={"turn": "1"})])
    other = catalog.require("n.t").metadata
    assert one is not other
    for kept in ("snapshots", "snapshot_log", "metadata_log", "statistics"):
        ours, theirs = getattr(one, kept), getattr(other, kept)
        assert ours
        assert ours is not theirs
        assert all(mine is same for mine, same in zip(ours, theirs, strict=False)), kept


@pytest.mark.parametrize(("deletes", "left"), [("true", 3), ("false", 7)])
def test_as_many_metadata_files_stay_as_the_table_says(tmp_path: Path, deletes: str, left: int) -> None:
    catalog, named = lake(tmp_path), "write.metadata"
    properties = {f"{named}.delete-after-commit.enabled": deletes, f"{named}.previous-versions-max": "2"}
    catalog.create("n.t", iceberg_schema(ROWS.schema), properties=properties)
    for turn in range(6):
        update = SetPropertiesUpdate(updates={"turn": str(turn)})
        catalog.commit(catalog.require("n.t"), [], [update])
    assert len([path for path in files_in(catalog.require("n.t"), "metadata") if path.endswith(".json")]) == left
