"""The README's option table says what the models say."""

from __future__ import annotations

from pathlib import Path

from jobs.spec.options import options, with_options

README = Path(__file__).parents[2] / "README.md"


def test_option_table_is_that_of_the_models() -> None:
    text = README.read_text()
    assert text == with_options(text), "run `python -m jobs.spec.options README.md`"


def test_every_option_says_what_it_means() -> None:
    assert [o.path for o in options() if not o.description] == []


def test_readme_begins_with_the_two_commands() -> None:
    first = [line.strip().split("  ")[0] for line in README.read_text().splitlines() if line.startswith("    ")][:2]
    assert first == ["make demo", "make test"]
