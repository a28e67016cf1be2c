"""Batchmerge from a wheel, outside of the checkout: a project that it makes, and one that was there before."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from jobs.connections_file import load_connections
from resources.local.ports import free_port
from tests.kit.dagster_dev import ask, running
from tests.kit.guides import DOCS, ROOT, all_blocks
from tests.kit.installed import Environment, install
from tests.kit.waiting import until

# Every module of ours in one process, in which a project's own have the names that ours have in the checkout.
_ALL_MODULES = """
import pkgutil, sys
import jobs, orchestration, resources, sql
import batchmerge, batchmerge_duckdb.destination
for module in pkgutil.walk_packages(batchmerge.__path__, "batchmerge."):
    if ".new_project" not in module.name and not module.name.endswith("clickhouse_server"):
        __import__(module.name)
        assert batchmerge.__path__[0] in sys.modules[module.name].__file__, module.name
assert all(module.WHOSE == "theirs" for module in (jobs, orchestration, resources, sql))
print(sum(name.startswith("batchmerge.") for name in sys.modules), "modules")
"""
_LAUNCH = """mutation($p: ExecutionParams!) { launchRun(executionParams: $p) { __typename } }"""
_FLIGHTS = {"repositoryLocationName": "my-project", "repositoryName": "__repository__", "jobName": "flights"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return install(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def project(installed: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty")
    installed.call("batchmerge", "init", "my-project", folder=folder)
    return folder / "my-project"


def test_a_project_of_ours(installed: Environment, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "All definitions loaded" in installed.call("dg", "check", "defs", folder=project)
    output = installed.call("batchmerge", "plan", "flights", folder=project / "my_project", code=2)
    assert "the connections file does not exist" in output
    # What was written before the package had its name.
    file = project / "my_project/defs/flights/defs.yaml"
    file.write_text(file.read_text().replace("batchmerge.KafkaPipeline", "orchestration.components.KafkaPipeline"))
    output = installed.call("dagster", "definitions", "validate", "-w", "workspace.yaml", folder=project)
    assert "All code locations passed validation" in output
    for name in ("KAFKA_PASSWORD", "CATALOG_CREDENTIAL", "CLICKHOUSE_PASSWORD"):
        monkeypatch.setenv(name, "x")
    assert "kafka" in load_connections(project / "connections.production.yaml").names()
    again = installed.call("batchmerge", "init", ".", folder=project, code=2)
    assert "the folder exists and is not empty" in again


def test_a_checkout_does_not_stand_before_it(installed: Environment, tmp_path: Path) -> None:
    """As in an image with both; Dagster puts the working folder first. Spark's workers have the package alone."""
    load = "import batchmerge.jobs.landing.task as found; print(found.LandingTask.__module__)"
    assert installed.call("python", "-c", load, folder=tmp_path).strip() == "batchmerge.jobs.landing.task"
    output = installed.call("python", "-c", load, folder=ROOT, code=1)
    assert f"and {ROOT} is a checkout of it" in output


@pytest.mark.slow
def test_a_project_that_has_modules_of_the_same_names(installed: Environment, tmp_path: Path) -> None:
    shop = tmp_path / "src" / "shop"
    (shop / "defs").mkdir(parents=True)
    (shop / "__init__.py").touch()
    (shop / "defs" / "__init__.py").touch()
    for name in ("jobs", "orchestration", "resources", "sql"):
        (tmp_path / "src" / f"{name}.py").write_text('WHOSE = "theirs"\n')
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "shop"\n'
    )
    page = all_blocks(DOCS / "install.md")
    (definitions,) = (block.text for block in page if block.language == "python")
    (shop / "definitions.py").write_text(f"{definitions}\nimport jobs, resources\nassert jobs.WHOSE == 'theirs'\n")
    source = f"{tmp_path / 'src'}{os.pathsep}{ROOT / 'tests/duckdb_destination'}"

    installed.call("dg", "scaffold", "defs", "batchmerge.KafkaPipeline", "orders", folder=tmp_path, path=source)

    written = yaml.safe_load((shop / "defs/orders/defs.yaml").read_text())
    assert written["type"] == "batchmerge.KafkaPipeline"
    assert "All definitions loaded" in installed.call("dg", "check", "defs", folder=tmp_path, path=source)
    output = installed.call("batchmerge", "check", "orders", folder=tmp_path, code=2, path=source)
    assert "ok    pipeline orders: file" in output
    assert "modules" in installed.call("python", "-c", _ALL_MODULES, folder=tmp_path, path=source)


@pytest.mark.slow
def test_demo_and_a_run_of_the_daemon(installed: Environment, project: Path, tmp_path: Path) -> None:
    """With services of its own: Spark's workers, and the processes of a run, find what is installed."""
    try:
        assert "every value is the same" in installed.call("batchmerge", "demo", folder=project)
        home, command = project / ".batchmerge", [str(installed.folder / "bin/dg"), "dev"]
        places = {"BATCHMERGE_HOME": home, "DAGSTER_HOME": home / "dagster", "PYTHONPATH": project}
        variables = {**installed.variables, **{name: str(place) for name, place in places.items()}}
        with running(command, free_port(()), variables, tmp_path / "log", project) as address:
            tags = [{"key": "dagster/partition", "value": f"{datetime.now(UTC):%Y-%m-%d-%H:00}"}]
            wanted = {"selector": _FLIGHTS, "mode": "default", "executionMetadata": {"tags": tags}}
            assert ask(address, _LAUNCH, {"p": wanted})["launchRun"]["__typename"] == "LaunchRunSuccess"

            def ended() -> str | None:
                (run,) = ask(address, "{ runsOrError(limit: 1) { ... on Runs { results { status } } } }", {})[
                    "runsOrError"
                ]["results"]
                return run["status"] if run["status"] in ("SUCCESS", "FAILURE", "CANCELED") else None

            assert until(ended, tmp_path / "log") == "SUCCESS"
    finally:
        installed.call("batchmerge", "down", folder=project)
