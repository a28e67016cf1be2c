"""Tables that a catalog is asked to create: by many at once, and by users with few rights."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.schema import Schema
from pyiceberg.table.update import SetPropertiesUpdate

from resources.errors import ConfigurationError
from tests.kit.lake import lake, with_metadata


def test_a_namespace_that_is_there_needs_no_right_to_create_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = lake(tmp_path)
    catalog.create("shop.one", Schema())

    def refuse(*_: object) -> None:
        raise ForbiddenError("no right to create namespaces")

    monkeypatch.setattr(SqlCatalog, "create_namespace", refuse)
    catalog.create("shop.two", Schema())
    assert catalog.load("shop.two")


def test_statistics_of_other_engines_stop_no_table(tmp_path: Path) -> None:
    blob = {"type": "presto-sum-data-size-bytes-v1", "snapshot-id": 1, "sequence-number": 1, "fields": [1]}
    file = {"snapshot-id": 1, "statistics-path": "file:///x", "file-size-in-bytes": 9, "file-footer-size-in-bytes": 9}
    lake(tmp_path).create("shop.one", Schema())
    catalog = with_metadata(tmp_path, "shop.one", {"statistics": [{**file, "blob-metadata": [blob]}]})
    table = catalog.require("shop.one")
    catalog.commit(table, [], [SetPropertiesUpdate(updates={"a": "b"})])
    (kept,) = lake(tmp_path).require("shop.one").metadata.statistics
    assert kept.blob_metadata[0].model_dump(by_alias=True, exclude_none=True) == blob


def test_metadata_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    lake(tmp_path).create("shop.one", Schema())
    catalog = with_metadata(tmp_path, "shop.one", {"format-version": 9})
    with pytest.raises(ConfigurationError, match="has something that pyiceberg cannot read") as refused:
        catalog.load("shop.one")
    assert refused.value.where == "shop.one"
