"""How work is given to Spark's tasks."""

from __future__ import annotations

import pytest

from jobs.spark_tasks import task_numbers


def test_numbers_of_tasks_are_those_that_spark_sends_to_a_partition_each() -> None:
    """Spark says: `SELECT min(id) FROM range(1000) GROUP BY pmod(hash(id), 7)`."""
    assert task_numbers(7) == [0, 1, 6, 7, 9, 12, 17]


@pytest.mark.parametrize("tasks", [1, 2, 200])
def test_each_task_has_a_number_of_its_own(tasks: int) -> None:
    assert len(set(task_numbers(tasks))) == tasks
