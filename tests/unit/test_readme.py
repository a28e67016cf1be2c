"""The README's option table says what the models say."""

from __future__ import annotations

import re
from pathlib import Path

from jobs.spec.options import options, with_options

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
# The mark of a process that we started, and the tests' own switch.
_OURS = {"BATCHMERGE_SERVICE", "BATCHMERGE_FAILPOINT"}


def test_option_table_is_that_of_the_models() -> None:
    text = README.read_text()
    assert text == with_options(text), "run `python -m jobs.spec.options README.md`"


def test_every_option_says_what_it_means() -> None:
    assert [o.path for o in options() if not o.description] == []


def test_readme_begins_with_the_two_commands() -> None:
    first = [line.strip().split("  ")[0] for line in README.read_text().splitlines() if line.startswith("    ")][:2]
    assert first == ["make demo", "make test"]


def test_every_variable_of_the_environment_is_in_its_table() -> None:
    code = [file.read_text() for part in ("jobs", "resources", "orchestration") for file in (ROOT / part).rglob("*.py")]
    known = set(re.findall(r"BATCHMERGE_[A-Z_]+", "".join(code)))
    assert set(re.findall(r"^\| `(BATCHMERGE_[A-Z_]+)` \|", README.read_text(), re.MULTILINE)) == known - _OURS
