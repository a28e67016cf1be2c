from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.command import Command, command


@pytest.fixture
def batchmerge(
    tmp_path: Path, stack: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs the command: `batchmerge(engine, "offsets", "show", "")` -> exit code and what it printed."""
    return command(tmp_path, stack, monkeypatch, capsys)
