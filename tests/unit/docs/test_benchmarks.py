"""Figures in the docs are those of a run."""

from __future__ import annotations

import pytest

from tests.benchmarks._costs import Compared, Costs
from tests.benchmarks._report import Measure, line, read
from tests.benchmarks.publish import KEPT, pages


def test_pages_have_the_figures_of_the_kept_results() -> None:
    for page, text in pages(read(KEPT)).items():
        assert page.read_text() == text, "run `python -m tests.benchmarks.publish docs/benchmarks.json`"


def test_line_has_median_spread_and_what_is_beside() -> None:
    one = Measure(what="merge", unit="s", turns=(3.0, 1.0, 2.0), beside={"bare": (0.5,), "none": ()})
    assert line(one) == "merge: 2.00 s (1.00 to 3.00)\n    bare: 0.50 s\n    none: not measured: too short"


@pytest.mark.parametrize("one", Costs(read(KEPT)).compared(), ids=lambda one: one.what)
def test_the_model_of_sizes_is_near_what_was_measured(one: Compared) -> None:
    assert one.off < 1.6
