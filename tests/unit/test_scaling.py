"""What the benchmark of scaling makes of the times of tasks."""

from __future__ import annotations

import pytest

from tests.benchmarks.scaling import Work, covered


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0),
        ([(1, 3), (5, 6)], 3),
        ([(1, 4), (2, 3), (3.5, 5)], 4),
        ([(1, 2), (2, 3)], 2),
    ],
)
def test_time_that_several_tasks_share_counts_once(spans: list[tuple[float, float]], seconds: float) -> None:
    assert covered(spans) == seconds


def test_what_is_serial_bounds_what_workers_can_gain() -> None:
    work = Work(serial=[0, 1, 10], tasks=[10, 99, 0], longest=[0, 0, 0])
    assert work.gain(share=1, few=1, many=100) == pytest.approx((100, 100 / 1.99, 1))
    assert work.gain(share=0.1, few=2, many=4) == pytest.approx((2, (1 + 495) / (1 + 247.5), 1))


def test_the_longest_task_bounds_what_workers_can_gain() -> None:
    work = Work(serial=[0, 1], tasks=[20, 20], longest=[1, 1])
    assert work.gain(share=1, few=1, many=100) == pytest.approx((20, 21 / 2))
    assert work.gain(share=1, few=1, many=10) == pytest.approx((10, 21 / 3))
