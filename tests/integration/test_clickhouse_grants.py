"""A ClickHouse user who has the grants that docs/security.md lists, and no other, on a server that asks for each."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import protocol
from jobs.connections_file import load_connections
from jobs.maintenance.run import maintain_table
from jobs.replay.landed import replay_batches
from jobs.verify.reconciliation import reconcile
from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection, Connections
from resources.errors import ConfigurationError, Unavailable
from resources.local import stack as local_stack
from resources.local.ports import free_port
from tests.kit import clickhouse as ch
from tests.kit import model
from tests.kit.engine import Engine
from tests.kit.guides import ROOT
from tests.kit.network import with_connection
from tests.kit.processes import stop
from tests.kit.records import COLUMNS, KEY, Record, random_changes

MODES = ["append", "upsert", "upsert_delete"]
USER, PASSWORD, POWERLESS, HASTY = "limited", "only-these-rights-1", "powerless", "hasty"
# What the settings file of an installed server has, and this one's has not.
_ASKS = """
  <access_control_improvements>
    <select_from_system_db_requires_grant>true</select_from_system_db_requires_grant>
    <select_from_information_schema_requires_grant>true</select_from_information_schema_requires_grant>
    <table_engines_require_grant>true</table_engines_require_grant>
  </access_control_improvements>
</clickhouse>"""
_USER = (
    "<{name}><password>" + PASSWORD + "</password><networks><ip>127.0.0.1</ip></networks><profile>{profile}</profile>"
    "<quota>default</quota><grants>{grants}</grants></{name}>"
)
# As analysts have it: a statement that takes too long ends without an error, with what it has done.
_PROFILE = (
    "<hasty><max_execution_time>1</max_execution_time><timeout_overflow_mode>break</timeout_overflow_mode></hasty>"
)
# The server keeps users in its file only.
_PROGRAM = """
from resources.local import clickhouse_server as server
server._CONFIG = server._CONFIG.replace("</clickhouse>", {asks!r})
server._USERS = server._USERS.replace("</users>", {users!r} + "</users>")
server._USERS = server._USERS.replace("<profiles>", "<profiles>" + {profile!r})
server.main()
"""


def documented() -> list[str]:
    """The grants, without whom they are for."""
    section = (ROOT / "docs" / "security.md").read_text().split("\n## ClickHouse\n")[1]
    found = re.search(r"```sql\n(.*?)```", section, re.DOTALL)
    assert found
    return [line.removesuffix(" TO batchmerge;") for line in found[1].splitlines()]


def _query(rights: str) -> str:
    return f"<query>GRANT {rights}</query>"


@pytest.fixture(scope="module")
def server(clickhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseConnection]:
    """The connection of its administrator."""
    folder, http = tmp_path_factory.mktemp("grants"), free_port([])
    zookeeper = next(s for s in local_stack.status(clickhouse) if s.name == "zookeeper")
    queries = "".join(f"<query>{grant}</query>" for grant in documented())
    given_to = {USER: queries, POWERLESS: _query("SELECT ON nothing.here"), HASTY: _query("ALL ON *.*")}
    users = "".join(
        _USER.format(name=name, grants=grants, profile=HASTY if name == HASTY else "default")
        for name, grants in given_to.items()
    )
    program = _PROGRAM.format(asks=_ASKS, users=users, profile=_PROFILE)
    command = [sys.executable, "-c", program, "--folder", str(folder)]
    command += ["--http-port", str(http), "--tcp-port", str(free_port([http]))]
    command += ["--zookeeper", f"127.0.0.1:{zookeeper.ports['client']}", "--user", "batchmerge"]
    command += ["--password-file", str(clickhouse / "secrets/clickhouse-password")]
    known = load_connections(clickhouse / "connections.yaml").get("clickhouse", ClickHouseConnection)
    given = {**known.model_dump(), "endpoints": [f"127.0.0.1:{http}"], "keeper_path": f"/grants-{http}"}
    connection = ClickHouseConnection.model_validate({**given, "password": known.password})
    process = subprocess.Popen(command)
    try:
        ch.until_up(ClickHouseServer("clickhouse", connection, connection.endpoints[0]), process)
        yield connection
    finally:
        stop(process)


def test_the_documented_grants_suffice(
    server: ClickHouseConnection, clickhouse: Path, spark: SparkSession, topic: Callable[..., str]
) -> None:
    known = load_connections(clickhouse / "connections.yaml")

    def as_user(name: str) -> Connections:
        given = {**server.model_dump(), "username": name, "password": PASSWORD}
        return with_connection(known, "clickhouse", ClickHouseConnection.model_validate(given))

    flow, administrator = ch.clickhouse_flow(topic(), MODES), with_connection(known, "clickhouse", server)
    names = {mode: f"shop.{mode}" for mode in MODES}
    flow.overrides["tables"] = [
        {"kind": "clickhouse", "table": names[mode], "mode": mode, "chunk_rows": 50} for mode in MODES
    ]
    flow.overrides["maintenance"] = {"clean_up": {"deletes": True}}
    one, records = Engine(flow, as_user(USER), spark), random_changes(4, 60, 9, 1)
    one.produce(*records)
    one.land()
    nobody = Engine(flow, as_user(POWERLESS), spark).pipeline
    with pytest.raises(ConfigurationError) as refused:
        protocol.merge(nobody, nobody.destination(names["append"]))
    assert PASSWORD not in str(refused.value)

    for destination in one.pipeline.destinations():
        protocol.merge(one.pipeline, destination)
        assert replay_batches(one.pipeline, destination, 1, 1)
        assert [str(done) for done in maintain_table(one.pipeline, destination) if done.problem] == []
    value = {"format": "json", "columns": {**COLUMNS, "extra": "string"}}
    source = {"topics": [flow.topic], "key": {"format": "json", "columns": KEY}, "value": value}
    wider, last = one.edited(source=source), Record(0, 1, {"id": 1, "name": "z", "amount": 2.0, "op": "u"})
    wider.produce(last)
    wider.land()
    for mode, name in names.items():
        destination = wider.pipeline.destination(name)
        protocol.merge(wider.pipeline, destination)
        assert reconcile(wider.pipeline, destination, 0).wrong == [], mode
        assert ch.rows(administrator, name) == model.expected([*records, last], mode), mode


def test_a_statement_that_takes_too_long_is_no_success(server: ClickHouseConnection) -> None:
    """Rows would be missing without a word, where the user's profile says `break`."""
    given = {**server.model_dump(), "username": HASTY, "password": PASSWORD}
    hasty = ClickHouseServer("clickhouse", ClickHouseConnection.model_validate(given), server.endpoints[0])
    slow = "SELECT count() AS n FROM numbers(100) WHERE NOT ignore(sleepEachRow(0.05)) SETTINGS max_block_size = 5"
    with pytest.raises(Unavailable, match="TIMEOUT_EXCEEDED"):
        hasty.rows(slow)
