"""README is short and begins with what people need; what it and the docs list is complete."""

from __future__ import annotations

import re
from typing import get_args

import click

from orchestration.cli import batchmerge
from tests.kit.guides import DOCS, README, ROOT, SECURITY, all_blocks
from tests.kit.option_tables import connection_models, options, with_options

OPERATIONS, OPTIONS = DOCS / "operations.md", DOCS / "options.md"
# The marks of processes that we started, and the tests' own switch.
_OURS = {"BATCHMERGE_SERVICE", "BATCHMERGE_RUN", "BATCHMERGE_FAILPOINT"}


def test_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 180


def test_readme_begins_with_the_two_commands() -> None:
    first = all_blocks(README)[0].text
    assert [line.split("  ")[0] for line in first.splitlines()] == ["make demo", "make test"]


def test_readme_shows_one_picture_and_one_pipeline_file() -> None:
    assert README.read_text().count("![") == 1
    assert [block.language for block in all_blocks(README)].count("yaml") == 1


def test_option_table_is_that_of_the_models() -> None:
    text = OPTIONS.read_text()
    assert text == with_options(text), "run `python -m tests.kit.option_tables docs/options.md`"


def test_every_option_says_what_it_means() -> None:
    assert [o.path for o in options() if not o.description] == []


def test_every_variable_of_the_environment_is_in_its_table() -> None:
    code = [file.read_text() for part in ("jobs", "resources", "orchestration") for file in (ROOT / part).rglob("*.py")]
    known = set(re.findall(r"BATCHMERGE_[A-Z_]+", "".join(code)))
    assert set(re.findall(r"^\| `(BATCHMERGE_[A-Z_]+)` \|", OPERATIONS.read_text(), re.MULTILINE)) == known - _OURS


def test_every_command_is_in_its_table() -> None:
    table = OPERATIONS.read_text().split("## Commands")[1].split("\n\n")[1]
    listed = set(re.findall(r"`(?:batchmerge )?([a-z-]+)`", table))
    commands = batchmerge.list_commands(click.Context(batchmerge))
    hidden = {
        name for name in commands if (found := batchmerge.get_command(click.Context(batchmerge), name)) and found.hidden
    }
    assert listed == set(commands) - hidden


def test_every_check_is_in_its_table() -> None:
    code = "".join((ROOT / f"orchestration/components/{name}.py").read_text() for name in ("checks", "verify"))
    named = set(
        re.findall(
            r'"((?:[a-z]+_){1,3}[a-z]+|reconciled)"', "".join(re.findall(r"^[A-Z_, ]+ = (.+)$", code, re.MULTILINE))
        )
    )
    assert named
    text = OPERATIONS.read_text()
    assert sorted(name for name in named if f"`{name}`" not in text) == []


def test_every_kind_of_connection_is_shown() -> None:
    kinds = [get_args(model.model_fields["kind"].annotation)[0] for model in connection_models()]
    text = SECURITY.read_text()
    assert kinds
    assert sorted(kind for kind in kinds if f"kind: {kind}," not in text) == []
