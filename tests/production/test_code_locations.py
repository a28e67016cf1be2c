"""Two code servers with pipelines of their own, one daemon, one webserver, PostgreSQL: as docs/production.md has it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestration.cli.instance import SETTINGS
from resources.connections import Connections
from resources.local.ports import accepts, free_port
from tests.kit.dagster_dev import ask, running
from tests.kit.flow import Flow, rows
from tests.kit.guides import PRODUCTION, blocks
from tests.kit.model import expected
from tests.kit.postgres import binaries, running_postgres
from tests.kit.processes import stop
from tests.kit.records import bootstrap, produce, random_changes

pytestmark = pytest.mark.production
BIN = Path(sys.executable).parent
_PATIENCE = 180
_LOCATIONS = "{ workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError { __typename } } } } }"
_RUNS = """{ runsOrError { ... on Runs { results {
    jobName status tags { key value } repositoryOrigin { repositoryLocationName } } } } }"""


@contextmanager
def _started(argv: list[str], environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the deployment, in a folder outside of the checkout."""
    # Nothing of the tests' own settings: each process has what it is given.
    own = {name: value for name, value in os.environ.items() if not name.startswith(("BATCHMERGE_", "DAGSTER_"))}
    with log.open("w") as out:
        own["PYTHONFAULTHANDLER"] = "1"
        process = subprocess.Popen(argv, env={**own, **environment}, cwd=log.parent, stdout=out, stderr=out)
    try:
        yield process
        assert process.poll() is None, f"it has ended with {process.returncode}: {log.read_text()[-3000:]}"
    finally:
        stop(process)


def _wait(wanted: Callable[[], object], what: str, logs: Path) -> None:
    until = time.monotonic() + _PATIENCE
    while not wanted():
        logged = {log.name: log.read_text()[-2000:] for log in logs.glob("*.log")}
        assert time.monotonic() < until, f"no {what} in time: {logged}"
        time.sleep(0.5)


def _pipelines(folder: Path, flow: Flow) -> Path:
    """A folder with the pipeline file of the flow."""
    (folder / flow.name).mkdir(parents=True)
    document = {"type": "orchestration.components.KafkaPipeline", "attributes": flow.spec_document}
    (folder / flow.name / "defs.yaml").write_text(yaml.safe_dump(document))
    return folder


def _workspace(file: Path) -> dict[str, int]:
    """The guide's workspace.yaml, with servers on this machine: location to port."""
    document = yaml.safe_load(blocks(PRODUCTION, "Several code locations")[0].text)
    servers = [entry["grpc_server"] for entry in document["load_from"]]
    for server in servers:
        server |= {"host": "127.0.0.1", "port": free_port([s["port"] for s in servers])}
    file.write_text(yaml.safe_dump(document))
    return {server["location_name"]: server["port"] for server in servers}


def _runs(address: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(address, _RUNS, {})["runsOrError"]["results"]
    return found


@pytest.mark.skipif(binaries() is None, reason="PostgreSQL is not installed (Debian: apt install postgresql)")
def test_a_schedule_and_a_sensor_of_two_locations_start_runs(
    stack: Path, connections: Connections, topic: Callable[..., str], tmp_path: Path
) -> None:
    pytest.importorskip("dagster_postgres", reason="needs the Python package dagster-postgres")
    by_cron = Flow(topic(), ["upsert_delete"], overrides={"cron": "* * * * *"})
    by_lag = Flow(topic(), ["upsert_delete"], overrides={"cron": "0 0 1 1 *", "trigger": {"records": 100}})
    flows = {"orders": by_cron, "billing": by_lag}
    records = random_changes(seed=5, count=200, keys=40, partitions=1)
    for flow in flows.values():
        produce(bootstrap(connections), flow.topic, records)
    for name in ("home", "postgres"):
        (tmp_path / name).mkdir()
    with ExitStack() as opened:
        postgres = opened.enter_context(running_postgres(tmp_path / "postgres"))
        settings = yaml.safe_load(SETTINGS.read_text())
        settings["storage"] = {"postgres": {"postgres_url": {"env": "DAGSTER_POSTGRES_URL"}}}
        (tmp_path / "home" / "dagster.yaml").write_text(yaml.safe_dump(settings))
        url = f"postgresql+psycopg2://postgres@127.0.0.1:{postgres.port}/postgres"
        dagster = {"DAGSTER_HOME": str(tmp_path / "home"), "DAGSTER_POSTGRES_URL": url}
        ports = _workspace(tmp_path / "workspace.yaml")
        assert set(ports) == set(flows)
        for location, port in ports.items():
            folder = _pipelines(tmp_path / location, flows[location])
            own = {"BATCHMERGE_PIPELINES": str(folder), "BATCHMERGE_CONNECTIONS": str(stack / "connections.yaml")}
            argv = [str(BIN / "dagster"), "api", "grpc", "-m", "orchestration.definitions", "-h", "127.0.0.1"]
            opened.enter_context(_started([*argv, "-p", str(port)], dagster | own, tmp_path / f"{location}.log"))
        _wait(lambda: all(map(accepts, ports.values())), "code servers", tmp_path)
        # Daemon and webserver know nothing of Batchmerge's systems.
        workspace = ["-w", str(tmp_path / "workspace.yaml")]
        daemon = [str(BIN / "dagster-daemon"), "run", *workspace]
        opened.enter_context(_started(daemon, dagster, tmp_path / "daemon.log"))
        page = [str(BIN / "dagster-webserver"), "-h", "127.0.0.1", *workspace]
        address = opened.enter_context(running(page, free_port(()), dagster, tmp_path / "webserver.log"))

        entries = ask(address, _LOCATIONS, {})["workspaceOrError"]["locationEntries"]
        loaded = {entry["name"]: entry["locationOrLoadError"]["__typename"] for entry in entries}
        assert loaded == dict.fromkeys(flows, "RepositoryLocation")
        names = {flow.name for flow in flows.values()}
        _wait(lambda: {r["jobName"] for r in _runs(address) if r["status"] == "SUCCESS"} >= names, "runs", tmp_path)
        every = _runs(address)

    assert not [run for run in every if run["status"] in ("FAILURE", "CANCELED")]
    started = {
        (run["repositoryOrigin"]["repositoryLocationName"], tag["value"])
        for run in every
        for tag in run["tags"]
        if tag["key"] in ("dagster/schedule_name", "dagster/sensor_name")
    }
    assert started == {("orders", f"{by_cron.name}_schedule"), ("billing", f"{by_lag.name}_lag")}
    for flow in flows.values():
        assert rows(connections, flow.table("upsert_delete")) == expected(records, "upsert_delete")
