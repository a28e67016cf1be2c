"""What commands and Spark's workers do not need they do not import: pandas alone takes more than half a second."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.kit import specs
from tests.kit.flow import ROOT

CLIENTS = {"clickhouse_connect", "google.cloud", "pandas", "pyiceberg", "pyspark", "sqlalchemy"}
CONNECTIONS = {
    "kafka": {"kind": "kafka", "bootstrap_servers": "localhost:1"},
    "spark": {"kind": "spark", "remote": "sc://localhost:1"},
    "lake": {"kind": "iceberg", "type": "sql", "uri": "sqlite:////nowhere.db", "warehouse": "file:///nowhere"},
    "clickhouse": {"kind": "clickhouse", "endpoints": ["localhost:1"]},
    "bigquery": {"kind": "bigquery", "project": "shop"},
}
READ = "from orchestration.files import pipeline_spec; pipeline_spec('orders')"
# As `status` and `plan` do, with an Iceberg table.
OPEN = """
from orchestration.files import open_pipeline
from jobs.connections_file import load_connections
pipeline = open_pipeline('orders', load_connections())
assert pipeline.destination_of(pipeline.spec.tables[0]).committed
"""
CHECK = """
from click.testing import CliRunner
from orchestration.cli import batchmerge
done = CliRunner().invoke(batchmerge, ['check', '--files-only', 'orders'])
assert done.exit_code == 0, done.output
"""


@pytest.mark.parametrize(
    ("does", "without"),
    [
        ("import orchestration.cli", {*CLIENTS, "dagster", "pyarrow"}),
        (f"import orchestration.cli.run; {READ}", {*CLIENTS, "dagster", "confluent_kafka"}),
        (f"import orchestration.cli.infer; {READ}", {*CLIENTS, "dagster", "sqlglot"}),
        (CHECK, {*CLIENTS, "dagster", "confluent_kafka", "sqlglot"}),
        (f"import orchestration.cli.check_systems, orchestration.cli.plan; {READ}", {"dagster"}),
        (f"import orchestration.cli.plan\n{OPEN}", {"dagster", "pyspark", "grpc", "pyiceberg.catalog.rest"}),
        (f"import orchestration.status.pipelines\n{OPEN}", {"dagster", "pyspark", "grpc", "jobs.protocol"}),
        ("import orchestration.status.dagster_state", {*CLIENTS - {"sqlalchemy"}, "jobs.spec", "pyarrow"}),
        ("import jobs.decode.decoders", {*CLIENTS, "dagster", "pydantic", "yaml"}),
    ],
)
def test_only_what_is_needed_is_imported(
    does: str, without: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [
        specs.table("iceberg", "upsert", partition_by=["bucket(4, id)"]),
        *(specs.table(kind, "upsert") for kind in ("clickhouse", "bigquery")),
    ]
    specs.write(tmp_path, "orders", specs.document(*tables, key=specs.ID))
    monkeypatch.setenv("BATCHMERGE_PIPELINES", str(tmp_path))
    (tmp_path / "connections.yaml").write_text(yaml.safe_dump({"connections": CONNECTIONS}))
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(tmp_path / "connections.yaml"))
    script = f"import sys\n{does}\nprint(*(name for name in {sorted(without)} if name in sys.modules))"
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


def test_a_checkout_is_not_run_beside_an_installed_package(tmp_path: Path) -> None:
    """Its tasks would be of modules `jobs.…`, and Spark's workers have `batchmerge.jobs.…` alone."""
    (tmp_path / "batchmerge" / "jobs").mkdir(parents=True)
    path = {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    done = subprocess.run(
        [sys.executable, "-c", "import batchmerge.orchestration.definitions"],
        cwd=ROOT,
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"ImportError: Batchmerge is installed in {tmp_path}, and {ROOT} is a checkout of it" in done.stderr
