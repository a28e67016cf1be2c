"""A role's session goes on from run to run, but not with catalogs of other settings: Spark makes a catalog once in a
session, and would keep old credentials for good."""

from __future__ import annotations

from typing import Any

import pytest

from resources import spark
from resources.connections import SparkConnection

LAKE = {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.lake.token": "old"}
ROTATED = {**LAKE, "spark.sql.catalog.lake.token": "new"}
OTHER = {"spark.sql.catalog.other": "org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.other.token": "old"}


class Session:
    """The settings of a session in the server."""

    def __init__(self) -> None:
        self.conf, self.set = self, dict[str, str]()
        self.is_stopped = False

    def get(self, name: str, default: str) -> str:
        return self.set.get(name, default)

    def _set_all(self, wanted: dict[str, str], silent: bool) -> None:
        assert not silent
        assert not self.is_stopped
        self.set |= wanted

    def stop(self) -> None:
        self.is_stopped = True


@pytest.mark.parametrize(
    ("before", "then", "goes_on"),
    [
        (LAKE, LAKE, True),
        (LAKE, ROTATED, False),
        (LAKE, {**LAKE, "spark.sql.catalog.lake.s3.endpoint": "x"}, False),
        (ROTATED | {"spark.sql.catalog.lake.s3.endpoint": "x"}, ROTATED, False),
        (LAKE | OTHER, OTHER, True),  # maintenance reaches the table alone
        (LAKE, LAKE | OTHER, True),
        ({}, LAKE, True),
    ],
)
def test_a_session_ends_where_the_settings_of_a_catalog_have_changed(
    before: dict[str, str], then: dict[str, str], goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = [Session()]

    def attach(*_: object) -> Any:
        if sessions[-1].is_stopped:
            sessions.append(Session())
        return sessions[-1]

    monkeypatch.setattr(spark, "_attach", attach)
    monkeypatch.setattr(spark, "_take_back", lambda *_: None)
    connection = SparkConnection(kind="spark", remote="sc://h")
    for settings in (before, then, then):
        spark.open_session(connection, "p/landing", settings)
    assert (len(sessions) == 1) is goes_on
    assert len(sessions) <= 2
    assert then.items() <= sessions[-1].set.items()
    ours = {name: value for name, value in sessions[-1].set.items() if "batchmerge" in name}
    assert ours
    assert not [text for text in (*ours, *ours.values()) if "lake" in text or "old" in text], "digests alone"
