"""The command `batchmerge`, run in this process on the pipeline file of an engine under test."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestration import files
from orchestration.cli import main
from tests.kit import specs
from tests.kit.empty_instance import make_empty_instance
from tests.kit.engine import Engine

# Exit code and what was printed; an empty argument stands for the pipeline's name.
Command = Callable[..., tuple[int, str]]


Call = Callable[..., tuple[int, str, str]]


def call_in_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs `batchmerge …` in this process; exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["batchmerge", *arguments])
        code: object = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        assert isinstance(code, int)
        return code, *capsys.readouterr()

    return run


def command(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Its pipeline files are in `folder`, and a Dagster instance of its own."""
    monkeypatch.setattr(files, "FOLDER", folder)
    monkeypatch.setenv("BATCHMERGE_HOME", str(home))
    make_empty_instance(folder / "dagster")
    monkeypatch.setenv("DAGSTER_HOME", str(folder / "dagster"))

    def run(engine: Engine, *arguments: str) -> tuple[int, str]:
        specs.write(folder, engine.flow.name, engine.document)
        monkeypatch.setattr(sys, "argv", ["batchmerge", *(a or engine.flow.name for a in arguments)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(str(end.code))
        said = capsys.readouterr()
        return code, said.out + said.err

    return run
