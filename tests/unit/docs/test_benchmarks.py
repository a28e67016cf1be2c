"""Figures in the docs are those of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import small_batches
from tests.benchmarks._costs import Compared, Costs
from tests.benchmarks._report import Measure, Part, Results, line, read, shown, write
from tests.benchmarks.publish import KEPT, in_full, main, pages


def test_pages_have_the_figures_of_the_kept_results() -> None:
    for page, text in pages(read(KEPT)).items():
        assert page.read_text() == text, "run `python -m tests.benchmarks.publish docs/benchmarks.json`"


def kept(name: str, **changed: object) -> Part:
    return read(KEPT).parts[name].model_copy(update=changed)


def test_a_section_describes_the_run_that_made_its_table() -> None:
    usual = {name: full for name, (full, _) in small_batches.SIZES.items()}
    text = in_full(Results(parts={"": kept("small_batches", about="As it was then.", sizes={**usual, "behind": 7})}))
    assert "\n\nAs it was then.\n\nMeasured with other sizes than today's: `behind` 7 in place of 5,000.\n\n|" in text
    text = in_full(Results(parts={"": kept("small_batches", about="", sizes=usual)}))
    assert (small_batches.__doc__ or "").strip() + "\n\n|" in text


def test_what_no_commit_has_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(found := tmp_path / "found.json", Results(parts={"append": kept("append", commit="0123456789-dirty")}))
    monkeypatch.setattr("sys.argv", ["publish", str(found)])
    with pytest.raises(SystemExit, match="no commit has: append"):
        main()


def test_two_turns_are_no_median() -> None:
    assert shown((1.0, 3.0), "s") == "2.00 s (1.00 to 3.00, of 2)"


def test_line_has_median_spread_and_what_is_beside() -> None:
    one = Measure(what="merge", unit="s", turns=(3.0, 1.0, 2.0), beside={"bare": (0.5,), "none": ()})
    assert line(one) == "merge: 2.00 s (1.00 to 3.00)\n    bare: 0.50 s\n    none: not measured: too short"


@pytest.mark.parametrize("one", Costs(read(KEPT)).compared(), ids=lambda one: one.what)
def test_the_model_of_sizes_is_near_what_was_measured(one: Compared) -> None:
    assert one.off < 1.6
