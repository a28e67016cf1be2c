"""When a Spark Connect server ends because a standalone master does not know it any more."""

from __future__ import annotations

import pytest

from resources.spark_connect.server import is_forgotten, keeps_executors


@pytest.mark.parametrize(
    ("seen", "forgotten"),
    # None: workers that are not there yet.
    [(1000.0, False), (710.0, False), (690.0, True), (None, False)],
)
def test_without_executors_for_minutes_it_is_forgotten(seen: float | None, forgotten: bool) -> None:
    assert is_forgotten(seen, now=1000.0) == forgotten


@pytest.mark.parametrize(
    ("settings", "keeps"),
    [
        ({"spark.master": "spark://spark-master:7077"}, True),
        ({"spark.master": "spark://one:7077,two:7077", "spark.dynamicAllocation.enabled": "false"}, True),
        ({"spark.master": "spark://spark-master:7077", "spark.dynamicAllocation.enabled": "true"}, False),
        ({"spark.master": "local[*]"}, False),
        ({"spark.master": "yarn"}, False),
        ({"spark.master": "k8s://https://cluster:6443"}, False),
        ({}, False),
    ],
)
def test_only_a_standalone_cluster_is_watched(settings: dict[str, str], keeps: bool) -> None:
    """Elsewhere no executors may mean that there is no work, and lost ones are started again."""
    assert keeps_executors(settings) == keeps
