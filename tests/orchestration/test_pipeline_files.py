"""A wrong pipeline file is reported with file and line, by the commands that people run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = "orchestration/defs/flights/defs.yaml"
BIN = Path(sys.executable).parent


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project, to break."""
    shutil.copytree(ROOT / "orchestration", tmp_path / "orchestration", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "workspace.yaml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def _change(project: Path, old: str, new: str) -> int:
    """Replaces a text that is there once; its line, from 1."""
    file = project / FILE
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    return text[: text.index(old)].count("\n") + 1


def _run(project: Path, *command: str) -> tuple[int, str]:
    path = os.pathsep.join([str(project), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "400", "DAGSTER_HOME": ""}
    done = subprocess.run(
        [BIN / command[0], *command[1:]], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_the_project_is_right(project: Path) -> None:
    for command in (("dg", "check", "toml"), ("dg", "check", "yaml"), ("dg", "check", "defs")):
        code, output = _run(project, *command)
        assert code == 0, output
    code, output = _run(project, "dagster", "definitions", "validate", "-w", "workspace.yaml")
    assert code == 0, output


def test_every_unknown_key_and_wrong_type_is_reported_with_its_line(project: Path) -> None:
    wrong_type = _change(project, "max_records: 20000", "max_records: many")
    unknown = _change(project, "paused: true", "pasued: true")
    in_a_table = _change(project, "- kind: clickhouse\n", "- kind: clickhouse\n      chunk_rows: few\n") + 1

    code, output = _run(project, "dg", "check", "yaml")

    assert code != 0
    assert f"defs.yaml:{wrong_type} " in output
    assert "'many' is not of type 'integer'" in output
    assert f"defs.yaml:{in_a_table} " in output
    assert "'few' is not of type 'integer'" in output
    assert f"defs.yaml:{unknown + 1} " in output
    assert "'pasued' was unexpected" in output


def test_mistakes_of_all_files_are_reported_without_frames(project: Path) -> None:
    """What JSON Schema cannot say; `dg check defs` shows it, and so does everything else that loads the project."""
    other = project / "orchestration/defs/others/defs.yaml"
    other.parent.mkdir()
    shutil.copy(project / FILE, other)
    _change(project, "columns: [carrier, flight, origin, scheduled]", "columns: [carrier, gate, flihgt]")
    pattern = _change(project, "topics: [flights]", "topics: [flights]\n    pattern: f.*") + 1
    ttl = "      ttl: arived\n"
    other.write_text(other.read_text().replace("    - kind: clickhouse\n", "    - kind: clickhouse\n" + ttl))
    line = other.read_text().splitlines(keepends=True).index(ttl) + 1

    code, output = _run(project, "dg", "check", "defs")

    assert code != 0
    assert "Stack Trace" not in output
    assert "frames hidden" not in output
    assert "pydantic" not in output
    assert f"{FILE}:{pattern}:14: source.pattern: there are `topics` too. Fix: name either `topics` or a" in output
    assert ":26: changes.key.columns[1]: gate is not a column of source.key. Fix: name one of carrier," in output
    assert ":32: changes.key.columns[2]: flihgt is not a column of source.key. Did you mean `flight`?" in output
    assert f"others/defs.yaml:{line}:12: tables[1].ttl: arived is not a column of the table. Did you mean" in output
