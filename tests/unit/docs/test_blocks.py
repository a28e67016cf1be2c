"""Every code block of the docs is run or validated.

Here: shell and YAML, whatever language a block has, against the programs and models that they are for. Beside that

=====================================  ==========================================================================
`tests/tutorial`                       runs the tutorial's blocks in their order
`tests/integration/test_recipes.py`    runs each transform's recipe on Spark, with the record beside it
`tests/integration/test_events.py`     runs the consumer of events.md against a real control topic
`tests/unit/docs/test_format.py`       runs the decoder of write-a-format.md, by the pipeline file there
`tests/production`                     runs workspace.yaml, and shows the unit to systemd
=====================================  ==========================================================================
"""

from __future__ import annotations

import configparser
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlglot
import yaml
from jinja2 import Environment

from jobs.decode import foreign
from jobs.destinations import registry
from jobs.spec import encoding
from tests.kit import shell_blocks, yaml_blocks
from tests.kit.guides import Block, all_blocks, pages

BLOCKS = [block for page in pages() for block in all_blocks(page)]
# YAML that is no part of ours, by page and the heading above it: who else reads it.
ELSEWHERE = {
    ("production.md", "Dagster's instance"): "one entry of dagster.yaml; tests/production runs it on PostgreSQL",
    ("production.md", "Several code locations"): "workspace.yaml; tests/production runs it",
    ("write-a-format.md", "A package of your own"): "test_format.py reads a record by it",
    ("pipeline-file.md", "Mistakes"): "a wrong file; test_mistakes.py shows what is reported about it",
}
_INSTRUCTIONS = {"FROM", "WORKDIR", "COPY", "RUN", "ENV"}


def _ini(text: str) -> None:
    """systemd's unit; `make production` shows it to systemd-analyze."""
    unit = configparser.ConfigParser(strict=False)
    unit.read_string(text)
    assert set(unit.sections()) == {"Unit", "Service", "Install"}


def _dockerfile(text: str) -> None:
    """No container can be built here: its instructions are known, and what it installs is as `pip` takes it. It copies
    no checkout, whose modules would stand before those of the installed package."""
    lines = [line.split(" ", maxsplit=1) for line in text.splitlines() if line]
    assert {instruction for instruction, _ in lines} <= _INSTRUCTIONS
    assert not [rest for instruction, rest in lines if instruction == "COPY" and rest.startswith(". ")]
    for instruction, rest in lines:
        if instruction == "RUN":
            shell_blocks.check_script(rest.replace("--no-cache-dir ", ""))


def _nothing(text: str) -> None:
    """Pictures in characters, and examples of commit subjects."""
    assert text.strip()


def _registered(document: dict[str, Any]) -> None:
    """The entry points of a destination kind, or of a format."""
    assert set(document["project"]["entry-points"]) <= {registry.GROUP, "batchmerge.destination_tests", foreign.GROUP}


CHECKS: dict[str, Callable[[str], object]] = {
    "bash": shell_blocks.check_script,
    "sql": lambda text: sqlglot.parse_one(text, dialect="spark"),
    "python": lambda text: compile(text, "<block>", "exec"),
    "json": json.loads,
    "ini": _ini,
    "dockerfile": _dockerfile,
    "toml": lambda text: _registered(tomllib.loads(text)),
    "jinja": lambda text: Environment().parse(text),
    "text": _nothing,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What commands and pipeline files of the docs name."""
    (tmp_path / "connector.json").write_text("{}")
    (tmp_path / "schemas").mkdir()
    fields = [{"name": "id", "type": "long"}]
    (tmp_path / "schemas/order.avsc").write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    (tmp_path / "schemas/shop.desc").write_bytes(_descriptors(tmp_path / "schemas"))
    monkeypatch.setattr(encoding, "PROJECT", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _descriptors(folder: Path) -> bytes:
    from grpc_tools import protoc

    (folder / "shop.proto").write_text('syntax = "proto3"; package shop; message Order { int64 id = 1; }')
    assert protoc.main(["", f"-I{folder}", "--include_imports", f"-o{folder / 'out'}", str(folder / "shop.proto")]) == 0
    return (folder / "out").read_bytes()


@pytest.mark.parametrize("block", BLOCKS, ids=str)
@pytest.mark.usefixtures("folder")
def test_block(block: Block, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if block.language == "yaml" and (block.page.name, block.heading) not in ELSEWHERE:
        yaml_blocks.check(block, monkeypatch, tmp_path)
    elif block.language == "yaml":
        assert yaml.safe_load(block.text)
    else:
        CHECKS[block.language](block.text)


def test_what_is_checked_elsewhere_is_there() -> None:
    assert {(b.page.name, b.heading) for b in BLOCKS if b.language == "yaml"} >= set(ELSEWHERE)


@pytest.mark.parametrize(
    ("script", "wrong"),
    [
        ("batchmerge plan orders --no-such-option", "No such option"),
        ("batchmerge fly orders", "No such command"),
        ("batchmerge run", "Missing parameter: pipeline"),
        ("batchmerge replay orders --from yesterday", "does not match the format"),
        ("make nothing", "has no target"),
        ("pytest tests/unit/test_nothing.py", "test_nothing"),
        ("ls", "no check of the program"),
    ],
)
def test_a_wrong_command_is_found(script: str, wrong: str) -> None:
    with pytest.raises(Exception, match=wrong):
        shell_blocks.check_script(script)


def test_a_wrong_part_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for text in ("batch: {max_record: 1}", "batch: {max_records: 1}\nbatch: {max_records: 2}", "colour: red"):
        block = Block(Path(__file__), 1, "", "yaml", text, "")
        with pytest.raises((ValueError, AssertionError)):
            yaml_blocks.check(block, monkeypatch, tmp_path)
