"""`batchmerge check` lets Spark read the landed table: it has credentials of its own for the catalog and its store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors.exceptions.connect import UnknownException

from jobs.pipeline import Pipeline
from orchestration.cli.check_systems import _ask_shared
from resources.errors import ConfigurationError


class Session:
    """Answers until it comes to the table's files, and remembers what it was asked."""

    def __init__(self, exists: bool) -> None:
        self.exists, self.catalog, self.asked = exists, self, list[str]()

    def tableExists(self, name: str) -> bool:
        self.asked.append(name)
        return self.exists

    def sql(self, statement: str) -> Any:
        self.asked.append(statement)
        return self

    table = sql

    def limit(self, count: int) -> Any:
        assert count == 1
        return self

    def collect(self) -> None:
        if "manifests" in self.asked[-1]:
            raise UnknownException("S3Exception: secret (Service: S3, Status Code: 403)")


@pytest.mark.parametrize("exists", [True, False])
def test_spark_is_asked_for_the_landed_table(exists: bool) -> None:
    session, opened = Session(exists), list[tuple[object, ...]]()

    def spark(*given: object) -> Session:
        opened.append(given)
        return session

    catalog = SimpleNamespace(spark_path=lambda identifier: ("lake", *identifier.split(".")))
    registries = SimpleNamespace(by_name={})
    table = SimpleNamespace(catalog=catalog, identifier="landing.p_tmp", registries=registries)
    spec = SimpleNamespace(source=SimpleNamespace(transform=None))
    pipeline = SimpleNamespace(spark=spark, intermediate=table, spec=spec, in_time=lambda _, __, work, ___: work())
    ((what, problem),) = _ask_shared(cast(Pipeline, pipeline))
    assert opened == [("check", catalog)]
    assert session.asked[:2] == ["SELECT 1", "`lake`.`landing`.`p_tmp`"]
    assert (what, isinstance(problem, ConfigurationError)) == ("Spark", exists)
    assert "secret" not in str(problem)
