"""What commands and Spark's workers do not need they do not import: pandas alone takes more than half a second."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import specs
from tests.kit.flow import ROOT

CLIENTS = {"clickhouse_connect", "google.cloud", "pandas", "pyiceberg", "pyspark", "sqlalchemy"}
READ = "from orchestration.files import pipeline_spec; pipeline_spec('orders')"


@pytest.mark.parametrize(
    ("does", "without"),
    [
        ("import orchestration.cli", {*CLIENTS, "dagster", "pyarrow"}),
        (f"import orchestration.cli.run; {READ}", {*CLIENTS, "dagster", "confluent_kafka"}),
        (f"import orchestration.cli.infer; {READ}", {*CLIENTS, "dagster"}),
        (f"import orchestration.cli.check, orchestration.cli.plan; {READ}", {"dagster"}),
        ("import jobs.decode.decoders", {*CLIENTS, "dagster", "pydantic", "yaml"}),
    ],
)
def test_only_what_is_needed_is_imported(
    does: str, without: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [specs.table(kind, "upsert") for kind in ("iceberg", "clickhouse")]
    specs.write(tmp_path, "orders", specs.document(*tables, key=specs.ID))
    monkeypatch.setenv("BATCHMERGE_PIPELINES", str(tmp_path))
    script = f"import sys; {does}; print(*(name for name in {sorted(without)} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


def test_what_workers_import_needs_no_current_folder(tmp_path: Path) -> None:
    """They run in a folder of their session, which Spark deletes after 30 idle minutes; pyiceberg looks there."""
    folder = tmp_path / "session"
    folder.mkdir()
    script = "import os, sys; os.rmdir(os.getcwd()); sys.path.insert(0, sys.argv[1]); import jobs.changes.files"
    done = subprocess.run(
        [sys.executable, "-c", script, str(ROOT)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
