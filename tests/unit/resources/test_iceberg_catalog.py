"""Tables that a catalog is asked to create: by many at once, and by users with few rights."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.schema import Schema

from tests.kit.lake import lake


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
