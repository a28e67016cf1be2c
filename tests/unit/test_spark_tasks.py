"""How work is given to Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from jobs.spark.spark_tasks import Batches, report_row, reports_in, task_numbers, telling, without_errors
from resources.errors import BadRecords


def test_numbers_of_tasks_are_those_that_spark_sends_to_a_partition_each() -> None:
    """Spark says: `SELECT min(id) FROM range(1000) GROUP BY pmod(hash(id), 7)`."""
    assert task_numbers(7) == [0, 1, 6, 7, 9, 12, 17]


@pytest.mark.parametrize("tasks", [1, 2, 200])
def test_each_task_has_a_number_of_its_own(tasks: int) -> None:
    assert len(set(task_numbers(tasks))) == tasks


def test_an_error_that_a_task_reports_is_raised_as_it_was() -> None:
    def fails(_batches: Batches) -> Iterator[pa.RecordBatch]:
        yield report_row("first")
        raise BadRecords("what", where="where", remedy="how", records=3)

    reports = reports_in(telling(fails)([]))
    assert reports[0] == "first"
    with pytest.raises(BadRecords, match="what") as refused:
        without_errors(reports)
    assert (refused.value.remedy, refused.value.facts) == ("how", {"records": 3})
    assert without_errors(["first", "second"]) == ["first", "second"]
