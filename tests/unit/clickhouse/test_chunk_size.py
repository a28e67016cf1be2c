"""Chunks follow the cluster's cores and the size of the rows, within what the file and the table allow."""

from __future__ import annotations

import pytest

from jobs.destinations.clickhouse.chunk_size import chunk_rows


@pytest.mark.parametrize(
    ("offsets", "megabytes", "most", "cores", "most_chunks", "expected"),
    [
        pytest.param(1_000_000, 12, 250_000, 2, 500, 250_000, id="as the file says"),
        pytest.param(300_000, 4, 250_000, 2, 500, 150_000, id="both cores have the same"),
        pytest.param(1_000_000, 12, 250_000, 16, 500, 62_500, id="each core has one"),
        pytest.param(1_000_000, 12, 250_000, 100, 500, 50_000, id="no tiny parts"),
        pytest.param(1_000_000, 12, 250_000, 16, 7, 142_858, id="no more than the table remembers"),
        pytest.param(1_000_000, 12, 100_000, 2, 3, 100_000, id="the file's limit holds"),
        pytest.param(100_000, 640, 250_000, 1, 500, 10_000, id="large rows"),
        pytest.param(100_000, 640, 250_000, 1, 4, 25_000, id="large rows, and the table remembers few"),
        pytest.param(120, 0, 50, 4, 500, 40, id="a small batch"),
        pytest.param(0, 0, 50, 4, 500, 1, id="nothing"),
    ],
)
def test_chunk_rows(offsets: int, megabytes: int, most: int, cores: int, most_chunks: int, expected: int) -> None:
    assert (
        chunk_rows(offsets=offsets, size=megabytes * 1_000_000, most=most, cores=lambda: cores, most_chunks=most_chunks)
        == expected
    )


def test_spark_is_not_asked_for_its_cores_where_they_cannot_matter() -> None:
    def cores() -> int:
        raise AssertionError("asked")

    assert chunk_rows(offsets=1000, size=50_000, most=250_000, cores=cores, most_chunks=500) == 1000
    assert chunk_rows(offsets=1_000_000, size=12_000_000, most=250_000, cores=cores, most_chunks=3) == 250_000
