"""The first command of the README, with the services that the tests have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.flow import ROOT

_BATCHMERGE = Path(sys.executable).with_name("batchmerge")


@pytest.mark.usefixtures("clickhouse", "bigquery", "connections")
def test_the_demo_shows_that_every_value_is_the_same(
    stack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHMERGE_HOME", str(stack))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.delenv("BATCHMERGE_CONNECTIONS", raising=False)

    done = subprocess.run([_BATCHMERGE, "demo"], check=False, capture_output=True, text=True, cwd=ROOT)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("every value is the same") == 3 + 3
    assert "quarantined 804; sent malformed 804" in done.stdout
