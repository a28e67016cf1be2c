"""A whole database as a new user would take it: twenty tables of PostgreSQL, one file of the docs, three systems.

PostgreSQL itself says what every table has to hold, row by row, after its tables have changed under load.
"""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from resources.connections import Connections
from tests.kit import bigquery, clickhouse, source_rows
from tests.kit.debezium import capturing
from tests.kit.engine import catalog
from tests.kit.guides import DOCS, blocks
from tests.kit.postgres import HOST, Postgres, binaries, running_postgres
from tests.kit.processes import stop
from tests.kit.project import Project
from tests.kit.records import bootstrap
from tests.kit.registry import running_registry
from tests.kit.source_rows import SourceTable
from tests.kit.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(binaries() is None, reason="PostgreSQL is not installed (apt-get install postgresql)"),
]

HERE = Path(__file__).parent
PIPELINE = blocks(DOCS / "formats-and-change-data.md", "A whole database")[0].text
# So many runs in a row that find nothing new say that nothing more comes.
IDLE = 3


Columns = Mapping[str, str]
Found = list[dict[str, Any]]


def of_iceberg(connections: Connections, table: str, columns: Columns) -> Found:
    found: Found = catalog(connections).require(table).scan(selected_fields=tuple(columns)).to_arrow().to_pylist()
    return found


def of_bigquery(connections: Connections, table: str, columns: Columns) -> Found:
    names = ", ".join(f"`{name}`" for name in columns)
    found: Found = bigquery.service(connections).arrow(f"SELECT {names} FROM `{table}`", "test").to_pylist()
    return found


def of_clickhouse(connections: Connections, table: str, columns: Columns) -> Found:
    """Bytes as PostgreSQL writes them: ClickHouse has text for them."""
    shown = {name: r"'\\x' || lower(hex({})) AS {}" if kind == "bytea" else "{}" for name, kind in columns.items()}
    return clickhouse.select(connections, table, [text.replace("{}", f"`{name}`") for name, text in shown.items()])


READ: Mapping[str, Callable[[Connections, str, Columns], Found]] = {
    "iceberg": of_iceberg,
    "clickhouse": of_clickhouse,
    "bigquery": of_bigquery,
}


@dataclass
class Shop:
    """The database, and the pipeline that follows it.

    Attributes:
        name: of the pipeline, of Debezium's topics and in the names of the tables.
        dropped: tables that PostgreSQL has no longer, as they were last.
    """

    postgres: Postgres
    project: Project
    connections: Connections
    name: str
    dropped: dict[str, SourceTable] = field(default_factory=dict)

    def run(self) -> str:
        code, output = self.project.call("run", self.name)
        print(output)
        assert code == 0, output
        return output

    @contextmanager
    def load(self) -> Iterator[None]:
        """pgbench's own transactions and the shop's, until the end of the block."""
        argv = [str(self.postgres.bin / "pgbench"), "-h", HOST, "-p", str(self.postgres.port), "-U", "postgres", "-n"]
        argv += ["-b", "tpcb-like", "-f", f"{HERE}/shop.pgbench"]
        argv += ["--client=2", "--rate=20", "--time=36000", "--max-tries=10"]
        log = self.project.folder / "pgbench.log"
        with log.open("w") as output:
            process = subprocess.Popen([*argv, "postgres"], stdout=output, stderr=subprocess.STDOUT)
            try:
                yield
                assert process.poll() is None, f"the load has stopped: {log.read_text()}"
            finally:
                stop(process)
        assert "aborted" not in log.read_text(), log.read_text()

    def changed(self, *statements: str) -> str:
        """Runs statements at the source, then the pipeline."""
        self.postgres.sql(";\n".join(statements))
        return self.run()

    def has_rows(self, table: str) -> bool:
        return bool(self.postgres.sql(f"SELECT 1 FROM {table} LIMIT 1"))

    def captured(self) -> None:
        """Waits until Debezium has read what was changed until now; needs the load, which moves its position on."""
        now = self.postgres.sql("SELECT pg_current_wal_lsn()")[0][0]
        asked = f"SELECT bool_and(confirmed_flush_lsn >= '{now}') FROM pg_replication_slots"
        until(lambda: self.postgres.sql(asked) == [["t"]], what="position of Debezium")

    def drop(self, table: str) -> None:
        """Of a table that is gone Debezium does not know the key: it sends what it had not read yet without one."""
        self.captured()
        self.dropped[table] = source_rows.read(self.postgres, table)
        self.postgres.sql(f"DROP TABLE {table}")

    def differences(self) -> dict[str, list[str]]:
        """By system and table."""
        source = {table: source_rows.read(self.postgres, table) for table in source_rows.tables(self.postgres)}
        found = {}
        for table, wanted in {**source, **self.dropped}.items():
            for kind, read in READ.items():
                if differ := wanted.differences(read(self.connections, f"{self.name}_{table}", wanted.columns)):
                    found[f"{kind} {table}"] = differ
        return found

    def run_until_equal(self) -> None:
        idle = 0
        while idle < IDLE:
            idle = 0 if "landed batch" in self.run() else idle + 1
            if not (found := self.differences()):
                return
        raise AssertionError(found)


@pytest.fixture
def shop(clickhouse: Path, bigquery: Path, connections: Connections, tmp_path: Path) -> Iterator[Shop]:
    assert bigquery == clickhouse
    (tmp_path / "postgres").mkdir()
    with running_postgres(tmp_path / "postgres") as postgres:
        argv = [str(postgres.bin / "pgbench"), "-h", HOST, "-p", str(postgres.port), "-U", "postgres", "-i", "-q"]
        subprocess.run([*argv, "postgres"], check=True, capture_output=True)
        subprocess.run([*argv[:-2], "-n", "-t", "20", "postgres"], check=True, capture_output=True)
        postgres.sql((HERE / "shop.sql").read_text())
        project = Project(tmp_path / "project", clickhouse, clickhouse / "connections.yaml")
        yield Shop(postgres, project, connections, f"shop{uuid.uuid4().hex[:6]}")


def follow(shop: Shop, pipeline: str) -> None:
    """Takes all tables over, then follows them through every change of their definitions, under load."""
    text = re.sub(r"\bshop", shop.name, pipeline)
    assert len(text.splitlines()) < 20
    file = shop.project.folder / "pipelines" / shop.name / "defs.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert len(source_rows.tables(shop.postgres)) == 20

    def all_topics() -> bool:
        """A table without rows has no topic yet."""
        code, output = shop.project.call("plan", shop.name, "--no-sql")
        return code == 0 and all(
            f"{shop.name}_{table} " in output for table in source_rows.tables(shop.postgres) if shop.has_rows(table)
        )

    until(all_topics, what="plan of all tables")
    shop.run_until_equal()

    with shop.load():
        shop.changed("ALTER TABLE sales.orders ADD COLUMN channel text, ADD COLUMN seen timestamptz",
                     "UPDATE sales.orders SET channel = 'web', seen = now() WHERE id % 3 = 0",
                     "CREATE TABLE sales.returns (id bigint, line smallint, reason text, PRIMARY KEY (id, line))",
                     "INSERT INTO sales.returns SELECT n, 1, 'broken ' || n FROM generate_series(1, 30) n",
                     "UPDATE sales.returns SET reason = NULL WHERE id < 5",
                     "ALTER TABLE stock ALTER pieces TYPE bigint",
                     "UPDATE stock SET pieces = 5e12 WHERE product = 7",
                     "ALTER TABLE prices ALTER price TYPE numeric(14,2)",
                     "UPDATE prices SET price = 1e11 WHERE product = 8",
                     "ALTER TABLE sales.payments ALTER fee TYPE double precision",
                     "UPDATE sales.payments SET fee = 1e300 WHERE order_id % 10 = 0")  # fmt: skip
        shop.postgres.sql("UPDATE coupons SET uses = 3 WHERE code LIKE '%5'; DELETE FROM coupons WHERE code = 'SAVE1'")
        shop.drop("public.coupons")
        shop.changed("TRUNCATE visits RESTART IDENTITY", "ALTER TABLE reviews DROP COLUMN feeling",
                     "INSERT INTO reviews (product, stars, body) VALUES (1, 5, 'without')")  # fmt: skip
    shop.run_until_equal()


# Of the connector: two schemas, and truncations.
SETTINGS = {"schema_include_list": "public,sales", "skipped_operations": "none"}


def test_every_table_equals_postgres(shop: Shop, tmp_path: Path) -> None:
    with capturing(tmp_path, bootstrap(shop.connections), shop.postgres, shop.name, **SETTINGS):
        follow(shop, PIPELINE)


def test_every_table_equals_postgres_in_avro(shop: Shop, tmp_path: Path) -> None:
    kafka = bootstrap(shop.connections)
    with running_registry(tmp_path) as url, capturing(tmp_path, kafka, shop.postgres, shop.name, url, **SETTINGS):
        connections = yaml.safe_load(shop.project.connections.read_text())
        connections["connections"]["registry"] = {"kind": "schema_registry", "url": url}
        file = tmp_path / "connections.yaml"
        file.write_text(yaml.safe_dump(connections))
        with_registry = replace(shop, project=replace(shop.project, connections=file))
        follow(with_registry, PIPELINE.replace("format: connect_json", "format: avro, registry: registry"))
