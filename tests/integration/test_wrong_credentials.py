"""Wrong credentials on real services: the error names the system and the setting of the connections file.

Kafka: `test_security.py`. Systems of which there is no real one that asks: `tests/unit/resources/test_secrets.py`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection, Connections, IcebergConnection
from resources.errors import TerminalError
from resources.iceberg import IcebergCatalog
from resources.local import stack as local_stack
from resources.local.lake import create_lake, lake_connection
from tests.kit.certificates import Authority
from tests.kit.postgres import HOST, binaries, running_postgres
from tests.kit.tls_proxy import tls_proxy

SECRET = "s3cret-77"


def refused(call: Callable[[], object], *wanted: str) -> None:
    with pytest.raises(TerminalError) as caught:
        call()
    assert [text for text in wanted if text not in str(caught.value)] == [], caught.value
    assert SECRET not in str(caught.value)


@pytest.mark.usefixtures("clickhouse")
class TestClickHouse:
    def server(self, connections: Connections, **given: object) -> ClickHouseServer:
        known = connections.get("clickhouse", ClickHouseConnection)
        wrong = ClickHouseConnection.model_validate({**known.model_dump(), "password": known.password, **given})
        return ClickHouseServer("clickhouse", wrong, wrong.endpoints[0])

    @pytest.mark.parametrize("given", [{"password": SECRET}, {"username": "nobody"}], ids=str)
    def test_credentials(self, given: dict[str, str], connections: Connections) -> None:
        server = self.server(connections, **given)
        refused(lambda: server.rows("SELECT 1"), "clickhouse clickhouse (127", "ClickHouse", "`username`", "`password`")

    def test_authority(self, connections: Connections, tmp_path: Path) -> None:
        """The right one travels: a worker of Spark does not have its file."""
        endpoint = connections.get("clickhouse", ClickHouseConnection).endpoints[0]
        for name in ("right", "wrong"):
            (tmp_path / name).mkdir()
        right, wrong = Authority(tmp_path / "right"), Authority(tmp_path / "wrong")
        with tls_proxy(endpoint, right.issue("server")) as secured:
            given = {"endpoints": [secured], "secure": True}
            stranger = self.server(connections, **given, ca_file=str(wrong.file))
            refused(lambda: stranger.rows("SELECT 1"), "is not trusted", "`ca_file`")
            sent = pickle.dumps(self.server(connections, **given, ca_file=str(right.file)))
            right.file.unlink()
            server = pickle.loads(sent)
            assert server.rows("SELECT 1 AS one") == [{"one": 1}]
            assert server.with_time(600).arrow("SELECT 1 AS one").to_pylist() == [{"one": 1}]


@pytest.mark.skipif(binaries() is None, reason="PostgreSQL is not installed")
def test_database_of_a_catalog(tmp_path: Path) -> None:
    folder = tmp_path / "postgres"
    folder.mkdir()
    with running_postgres(folder) as database:
        database.sql("CREATE USER lake PASSWORD 'right'")
        rules = database.data / "pg_hba.conf"
        rules.write_text("host all lake 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n")
        database.sql("SELECT pg_reload_conf()")
        uri = f"postgresql+psycopg2://lake:{SECRET}@{HOST}:{database.port}/postgres"
        lake = IcebergConnection(kind="iceberg", type="sql", uri=uri, warehouse=str(tmp_path))
        refused(lambda: IcebergCatalog("lake", lake).load("n.t"), "lake", "the catalog's database", "`uri`")


def test_object_store(tmp_path: Path) -> None:
    (s3,) = [service for service in local_stack.SERVICES if service.name == "s3"]
    if reason := s3.unavailable():
        pytest.skip(reason)
    site = local_stack.up(tmp_path, ["s3"], print, "s3")
    try:
        create_lake(tmp_path)
        right = IcebergConnection.model_validate(lake_connection(site))
        schema = Schema(NestedField(1, "id", LongType(), required=True))
        IcebergCatalog("lake", right).create("n.right", schema)
        settings = ("`properties`", "`spark_properties`", "`s3.access-key-id`", "`s3.secret-access-key`")
        for wrong in ({"s3.secret-access-key": SECRET}, {"s3.access-key-id": "nobody"}):
            lake = IcebergCatalog("lake", right.model_copy(update={"properties": {**right.properties, **wrong}}))
            refused(partial(lake.create, "n.wrong", schema), "the object store refuses access", *settings)
            refused(partial(lake.require, "n.right"), "the object store refuses access", *settings)
    finally:
        local_stack.down(tmp_path, print)
