"""Which crash tests `make test` runs: enough to see every kind of boundary. `make crash` runs all of them."""

from __future__ import annotations

import pytest

IN_EVERY_TEST_RUN = (
    "test_iceberg_crash.py::test_killed_run_is_finished_by_the_next[one_of_each-land.written]",
    "test_iceberg_crash.py::test_killed_run_is_finished_by_the_next[one_of_each-land.published]",
    "test_iceberg_crash.py::test_killed_run_is_finished_by_the_next[one_of_each-merge.written]",
    "test_iceberg_crash.py::test_killed_run_is_finished_by_the_next[one_of_each-merge.published]",
    "test_iceberg_crash.py::test_killed_while_spark_writes[spark worker]",
    "test_iceberg_crash.py::test_killed_direct_landing[land.written]",
    "test_iceberg_crash.py::test_run_that_wakes_up_late_is_refused",
    "test_iceberg_crash.py::test_two_runs_at_once",
    "test_events_crash.py::test_events_of_a_killed_run_are_published_by_the_next[events.complete.written]",
    "test_dead_letters_crash.py::test_killed_retry_is_finished_by_the_next[retry.published]",
    "test_dead_letters_crash.py::test_killed_landing_sends_each_letter_once[dead-letters.written]",
    "test_clickhouse_crash.py::test_killed_upserts_are_finished[clickhouse.inserted]",
    "test_clickhouse_crash.py::test_late_insert_of_a_dead_run_is_stopped",
    "test_clickhouse_crash.py::test_two_runs_at_once",
    "test_bigquery_crash.py::test_killed_run_is_finished_by_the_next[bigquery.loaded]",
    "test_bigquery_crash.py::test_killed_run_is_finished_by_the_next[bigquery.submitted]",
    "test_bigquery_crash.py::test_two_runs_at_once",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/crash/" in item.nodeid and not any(wanted in item.nodeid for wanted in IN_EVERY_TEST_RUN):
            item.add_marker(pytest.mark.slow)
