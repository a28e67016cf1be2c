"""What `docs/pipeline-file.md` shows of a wrong file is what the command says about it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestration.cli import batchmerge
from tests.kit.guides import DOCS, blocks


def test_the_wrong_file_is_reported_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, shown_there = blocks(DOCS / "pipeline-file.md", "Mistakes")
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "defs.yaml").write_text(wrong.text)
    (tmp_path / "connections.yaml").write_text("connections: {}")
    monkeypatch.setattr("orchestration.files.FOLDER", tmp_path)
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(tmp_path / "connections.yaml"))

    done = CliRunner().invoke(batchmerge, ["check", "orders", "--files-only"])

    assert done.exit_code == 2
    shown = [line.strip().replace(f"{tmp_path}/", "") for line in done.output.splitlines() if "defs.yaml:" in line]
    assert shown == shown_there.text.splitlines(), done.output
