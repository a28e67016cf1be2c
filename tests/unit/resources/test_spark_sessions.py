"""A role's session goes on from run to run, but not with catalogs of other settings: Spark makes a catalog once in a
session, and would keep old credentials for good."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
from pyspark.errors.exceptions.connect import SparkConnectException
from pyspark.sql.connect.proto import ConfigRequest

from resources import spark
from resources.connections import SparkConnection

LAKE = {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.lake.token": "old"}
ROTATED = {**LAKE, "spark.sql.catalog.lake.token": "new"}
OTHER = {"spark.sql.catalog.other": "org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.other.token": "old"}


DOWN = {"spark.sql.catalog.down": "org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.down.token": "old"}


class Session:
    """A session in the server: its settings, and the catalogs that it has made, each with its settings then."""

    def __init__(self, down: Collection[str] = ()) -> None:
        self.conf, self.client = self, self
        self.set, self.made, self.down = dict[str, str](), dict[str, set[str]](), set(down)
        self.steps: list[str] = []
        self.is_stopped = False

    @property
    def getAll(self) -> dict[str, str]:
        """Values whose names could be those of secrets are hidden."""
        assert not self.is_stopped
        self.steps.append("get")
        return {name: "***" if name.endswith(".token") else value for name, value in self.set.items()}

    def _set_all(self, wanted: dict[str, str], silent: bool) -> None:
        assert not silent
        assert not self.is_stopped
        self.steps.append("set")
        self.set |= wanted

    def range(self, _: int) -> Session:
        return self

    def select(self, name: str) -> Session:
        self.steps.append("make")
        if name in self.down:
            raise SparkConnectException("down")
        # Once: it keeps what it was made with.
        self.made.setdefault(name, {value for key, value in self.set.items() if f".{name}." in key})
        return self

    schema = None

    def config(self, operation: ConfigRequest.Operation) -> None:
        self.steps.append("unset")
        for name in operation.unset.keys:
            self.set.pop(name, None)

    def stop(self) -> None:
        self.is_stopped = True


Opens = Callable[..., Session]


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> Opens:
    """Opens the one role's session; one that was stopped is followed by a new one."""
    sessions = [Session()]

    def attach(*_: object) -> Any:
        if sessions[-1].is_stopped:
            sessions.append(Session(sessions[-1].down))
        return sessions[-1]

    def open_(settings: dict[str, str], own: dict[str, str] | None = None, down: Collection[str] = ()) -> Session:
        sessions[-1].down = set(down)
        sessions[-1].steps.clear()
        connection = SparkConnection(kind="spark", remote="sc://h", settings=own or {})
        spark.open_session(connection, "p/landing", settings)
        return sessions[-1]

    monkeypatch.setattr(spark, "_attach", attach)
    monkeypatch.setattr("pyspark.sql.functions.call_function", lambda name: name.split("`")[1])
    return open_


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
    before: dict[str, str], then: dict[str, str], goes_on: bool, opens: Opens
) -> None:
    first, second = opens(before), opens(then)
    assert (second is first) is goes_on
    assert opens(then) is second
    assert {name: second.made[name] for name in _names(then)} == {name: _values(then, name) for name in _names(then)}
    ours = {name: value for name, value in second.set.items() if "batchmerge" in name}
    assert ours
    assert not [text for text in (*ours, *ours.values()) if "lake" in text or "old" in text], "digests alone"


def test_a_catalog_that_was_made_is_left_alone(opens: Opens) -> None:
    assert opens(LAKE | OTHER).steps == ["get", "set", "make", "unset", "make", "unset"]
    for _ in range(2):
        session = opens(LAKE | OTHER)
        assert session.steps == ["get"]
        assert not [name for name in session.set if name.endswith(".token")]


def test_only_what_a_session_lacks_is_set(opens: Opens) -> None:
    opens(LAKE)
    session = opens(LAKE, {"spark.sql.shuffle.partitions": "7"})
    assert (session.steps, session.set["spark.sql.shuffle.partitions"]) == (["get", "set"], "7")
    assert "spark.sql.catalog.lake.token" not in session.set


def test_a_catalog_that_is_down_keeps_its_settings_until_a_run_makes_it(opens: Opens) -> None:
    for _ in range(2):
        session = opens(LAKE | DOWN, down=["down"])
        assert [name for name in session.set if name.endswith(".token")] == ["spark.sql.catalog.down.token"]
    assert opens(LAKE | DOWN).steps == ["get", "set", "make", "unset"]
    assert session.made["down"] == {"old"}
    assert opens(LAKE | DOWN).steps == ["get"]


@pytest.mark.parametrize("then", [DOWN | {"spark.sql.catalog.down.token": "new"}, dict([*DOWN.items()][:1])])
def test_settings_that_change_while_a_catalog_is_down(then: dict[str, str], opens: Opens) -> None:
    """A query may have made it meanwhile, with the old ones."""
    before = opens(DOWN, down=["down"])
    before.down.clear()
    before.select("down")
    session = opens(then)
    assert session is not before
    assert session.made["down"] == _values(then, "down")
    assert "spark.sql.catalog.down.token" not in session.set


def test_settings_of_the_connection_stay(opens: Opens) -> None:
    for _ in range(2):
        session = opens(LAKE, OTHER)
        assert OTHER.items() <= session.set.items()
        assert [*session.made] == ["lake"]


def _names(settings: dict[str, str]) -> set[str]:
    return {name.split(".")[3] for name in settings}


def _values(settings: dict[str, str], catalog: str) -> set[str]:
    return {value for name, value in settings.items() if f".{catalog}." in name}
