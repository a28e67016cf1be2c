"""Which crash tests `make test` runs: of each step one. `make crash` runs all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from resources.local import stack as local_stack
from tests.kit.crash_log import Log
from tests.kit.kinds import KINDS, runnable, with_others
from tests.kit.project import Project
from tests.kit.story import Target, targets

IN_EVERY_TEST_RUN = (
    "test_every_boundary.py::test_killed_merge[iceberg-merge.written]",
    "test_every_boundary.py::test_killed_run[land.written-upsert_delete]",
    "test_two_runs.py::test_run_that_wakes_up_late_is_refused[iceberg-merge.written]",
    "test_clickhouse_crash.py::test_late_insert_of_a_dead_run_is_stopped",
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


NewLog = Callable[..., Log]


@pytest.fixture(scope="module")
def new_log(project: Project, module_topic: Callable[..., str]) -> NewLog:
    def make(tables: Sequence[Target], **parts: object) -> Log:
        return Log(project, module_topic(partitions=2), tables, parts)

    return make


@pytest.fixture(scope="module")
def logs(new_log: NewLog) -> Callable[..., Log]:
    """By kind: a pipeline with one table of each of its modes; of a kind that can merge in another way, in that way."""

    def make(kind: str, way: int = 0) -> Log:
        log = new_log([t for t in targets() if t.kind.name == kind])
        log.options = KINDS[kind].ways[way]
        log.write()
        return log

    return cache(make)
