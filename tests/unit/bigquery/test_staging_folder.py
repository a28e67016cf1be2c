"""Where files for a load go, whose credentials write them, and that they are removed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.destinations.bigquery.staging_folder import StagingFolder
from resources.connections import BigQueryConnection
from resources.iceberg import IcebergCatalog
from resources.iceberg_io import RenewedFileIO
from tests.kit.lake import lake


@pytest.fixture
def catalog(tmp_path: Path) -> IcebergCatalog:
    return lake(tmp_path)


@pytest.fixture
def landed(catalog: IcebergCatalog) -> Table:
    return catalog.create("n.orders", Schema())


def folder_of(catalog: IcebergCatalog, landed: Table, **options: object) -> StagingFolder | None:
    known = {"kind": "bigquery", "project": "p", **options}
    return StagingFolder.of(BigQueryConnection.model_validate(known), "orders", landed, catalog)


def test_files_are_beside_the_landed_ones_unless_the_connection_names_a_place(
    catalog: IcebergCatalog, landed: Table
) -> None:
    assert folder_of(catalog, landed) is None
    beside = folder_of(catalog, landed, reads=["file:/"])
    assert beside
    assert beside.path == f"{landed.location()}/staging"
    named = folder_of(catalog, landed, reads=["file:/"], staging="gs://bucket/batchmerge/")
    assert named
    assert named.path == "gs://bucket/batchmerge/orders"


def test_files_elsewhere_are_not_written_with_what_is_vended_for_the_landed_ones(
    catalog: IcebergCatalog, landed: Table
) -> None:
    """A token for one bucket is refused by another one."""
    ends = {"gcs.oauth2.token": "vended", "gcs.oauth2.token-expires-at": str(2**45)}
    vended = PyArrowFileIO({**landed.io.properties, **ends})
    landed.io = RenewedFileIO(vended, lambda: vended)
    beside = folder_of(catalog, landed, reads=["file:/"])
    assert beside
    assert beside.storage is landed.io
    for staging in ("gs://bq-eu-staging/batchmerge", f"{landed.location()}2"):
        elsewhere = folder_of(catalog, landed, staging=staging)
        assert elsewhere
        assert not ends.keys() & elsewhere.storage.properties.keys()
        assert elsewhere.storage.properties["warehouse"] == landed.io.properties["warehouse"]


def test_files_are_removed_after_a_failure_too_though_some_were_never_written(tmp_path: Path) -> None:
    folder = StagingFolder(f"file://{tmp_path}", load_file_io({}))
    paths = [folder.new_path("rows") for _ in range(20)]
    for path in paths[::2]:
        Path(path.removeprefix("file://")).touch()
    with pytest.raises(ZeroDivisionError), folder.removing(paths, "t"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_removed_do_not_undo_the_load(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder in the place of a file stands for what may be written and not deleted."""
    folder = StagingFolder(f"file://{tmp_path}", load_file_io({}))
    (tmp_path / "rows").mkdir()
    with caplog.at_level(logging.WARNING, "batchmerge"), folder.removing([f"{folder.path}/rows"], "the table"):
        pass
    assert "the table: files of a load are left in the staging folder" in caplog.text
