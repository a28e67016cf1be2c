"""How many tasks a cluster runs at a time, by what Spark says of its cores and of what it may grow to."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from resources.spark import parallelism

GROWS = {"spark.dynamicAllocation.enabled": "true"}


class Session:
    """Has the settings that a server was started with, and plans for the cores that there are now."""

    def __init__(self, cores: int, settings: dict[str, str]) -> None:
        self.cores, self.conf = cores, self
        self.get = settings.get

    def range(self, _end: int) -> Any:
        return self

    def _explain_string(self) -> str:
        return f"*(1) Range (0, 1, step=1, splits={self.cores})"


@pytest.mark.parametrize(
    ("cores", "settings", "tasks"),
    [
        (12, {}, 12),
        (12, {"spark.executor.cores": "4"}, 12),
        (2, {**GROWS, "spark.dynamicAllocation.maxExecutors": "5", "spark.executor.cores": "4"}, 20),
        (24, {**GROWS, "spark.dynamicAllocation.maxExecutors": "5", "spark.executor.cores": "4"}, 24),
        # Spark's own default is any number of executors. With none there it plans for two cores.
        (2, GROWS, 100),
        (2, {**GROWS, "spark.executor.cores": "4"}, 400),
        (2, {"spark.dynamicAllocation.maxExecutors": "5"}, 2),
    ],
)
def test_tasks_at_a_time(cores: int, settings: dict[str, str], tasks: int) -> None:
    assert parallelism(cast(SparkSession, Session(cores, settings))) == tasks
