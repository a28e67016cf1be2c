"""What the model of `docs/scale.md` counts for the process of a run: the metadata of its tables, which it reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.benchmarks._metadata import Reading
from tests.benchmarks._report import read
from tests.benchmarks.publish import KEPT
from tests.benchmarks.sizing import DEPLOYMENTS, Deployment, need

MANY = Reading(topics=100, tables=100, in_iceberg=True, interval=60, kept=2_000, snapshot=1_500)


def test_a_run_of_many_tables_reads_all_snapshots_at_each_load() -> None:
    assert MANY.cores(remembers=True) == MANY.cores(remembers=False) == pytest.approx(100 * 21 * 2_060 * 50e-6 / 60)
    assert MANY.bytes(remembers=True) == pytest.approx(100 * 21 * 2_060 * 1_500 / 60)


@pytest.mark.parametrize(
    ("reading", "remembered"),
    [
        (MANY, False),
        # With what an hour without maintenance adds.
        (replace(MANY, topics=50, tables=50, kept=38), True),
        (replace(MANY, topics=50, tables=50, kept=40), False),
        (replace(MANY, kept=38, in_iceberg=False), True),
        (replace(MANY, topics=4, tables=4), True),
        (replace(MANY, topics=5, tables=5), False),
    ],
)
def test_a_catalog_in_a_database_remembers_some_tables(reading: Reading, remembered: bool) -> None:
    assert (reading.cores(remembers=True) == 0) == remembered
    assert reading.cores(remembers=False) > 0


@pytest.mark.parametrize("wanted", DEPLOYMENTS)
def test_the_deployments_of_the_page_keep_up(wanted: Deployment) -> None:
    """A run is one process, with one core for its Python."""
    results = read(KEPT)
    assert need(wanted, results).of_run < 0.6
    alone = replace(wanted, pipelines=1, kept=20_160)
    assert need(alone, results).of_run > 1
