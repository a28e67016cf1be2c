"""What the benchmark of scaling makes of the times of tasks."""

from __future__ import annotations

import pytest

from tests.benchmarks.scaling import amdahl, covered


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


def test_what_is_serial_bounds_what_cores_can_gain() -> None:
    assert amdahl(serial=0, tasks=10) == pytest.approx(100)
    assert amdahl(serial=1, tasks=99) == pytest.approx(100 / 1.99)
    assert amdahl(serial=10, tasks=0) == 1
