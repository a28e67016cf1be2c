"""Which crash tests `make test` runs: enough to see every kind of boundary. `make crash` runs all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from resources.local import stack as local_stack
from tests.kit.kinds import KINDS, runnable, with_others
from tests.kit.project import Project

IN_EVERY_TEST_RUN = (
    "test_every_boundary.py::test_killed_merge[iceberg-merge.written]",
    "test_every_boundary.py::test_killed_merge[clickhouse-clickhouse.inserted]",
    "test_every_boundary.py::test_killed_merge[bigquery-bigquery.submitted]",
    "test_every_boundary.py::test_killed_run[land.written]",
    "test_members_crash.py::test_killed_merges[iceberg]",
    "test_iceberg_crash.py::test_run_that_wakes_up_late_is_refused[merge.written]",
    "test_clickhouse_crash.py::test_late_insert_of_a_dead_run_is_stopped",
    "test_bigquery_crash.py::test_two_runs_at_once",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/crash/" in item.nodeid and not any(wanted in item.nodeid for wanted in IN_EVERY_TEST_RUN):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def project(stack: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """With the services of every kind that can run here."""
    up = [kind.service for kind in KINDS.values() if kind.service and runnable(kind)]
    local_stack.up(stack, up, print)
    return Project(tmp_path_factory.mktemp("project"), stack, with_others(stack))
