"""A kind of another package is seen wherever tables are, without an edit anywhere else; its guide is true."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import indent

import pytest
from batchmerge_duckdb.database import transaction
from batchmerge_duckdb.spec import DuckDbConnection
from pyspark.sql import SparkSession

from jobs.connections_file import load_connections
from jobs.spec.pipeline import PipelineSpec
from orchestration.components import KafkaPipeline
from tests.kit import model
from tests.kit.command import Command, command
from tests.kit.engine import Engine
from tests.kit.flow import Flow
from tests.kit.guides import DOCS, Block, all_blocks
from tests.kit.kinds import KINDS, with_others
from tests.kit.records import bootstrap, produce, random_changes

PACKAGE = Path(__file__).parent
EXAMPLE = [block for block in all_blocks(DOCS / "write-a-destination.md") if block.heading == "A worked example"]


@pytest.fixture
def batchmerge(
    tmp_path: Path, stack: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(with_others(stack)))
    return command(tmp_path, stack, monkeypatch, capsys)


@pytest.fixture
def flow(topic: Callable[..., str]) -> Flow:
    made = Flow(topic(), ["upsert_delete"], overrides={"retry": {"max_retries": 0}})
    made.overrides["tables"] = [{"kind": "duckdb", "table": made.table("upsert_delete"), "mode": "upsert_delete"}]
    return made


def test_plan_run_status_and_verify_know_the_kind(
    flow: Flow, stack: Path, spark: SparkSession, batchmerge: Command
) -> None:
    connections = load_connections(with_others(stack))
    engine, table = Engine(flow, connections, spark), flow.table("upsert_delete")
    records = random_changes(1, 40, 8, 1, bad=0)
    produce(bootstrap(connections), flow.topic, records)

    code, output = batchmerge(engine, "plan", "")
    assert code == 0, output
    assert f"create duckdb {table}" in output
    assert "MERGE INTO" in output
    assert "one transaction of the file" in output
    code, output = batchmerge(engine, "run", "")
    assert code == 0, output
    code, output = batchmerge(engine, "status", "--json")
    (status,) = json.loads(output[output.index("{") :])["pipelines"]
    assert code == 0
    assert [(t["name"], t["batch"], t["lag"], t["problem"]) for t in status["tables"]][1:] == [
        (f"duckdb {table}", 1, 0, None)
    ]
    code, output = batchmerge(engine, "verify", "")
    assert (code, "FAILED" in output) == (0, False), output
    expected = model.expected(records, "upsert_delete")
    found = [(row["id"], row["name"], row["amount"]) for row in KINDS["duckdb"].rows(connections, table)]
    assert sorted(found) == expected

    KINDS["duckdb"].remove(connections, table, below=4)
    code, output = batchmerge(engine, "verify", "")
    assert (code, f"landed changes make {len(expected)}" in output) == (1, True), output


def test_threads_wait_for_the_file_while_another_process_has_it(tmp_path: Path) -> None:
    file = tmp_path / "tables.duckdb"
    connection = DuckDbConnection(kind="duckdb", file=file, patience_seconds=60)
    holds = "import duckdb, sys; db = duckdb.connect(sys.argv[1]); print('holds', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", holds, str(file)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other,
        ThreadPoolExecutor(6) as pool,
    ):
        assert other.stdin
        assert other.stdout
        assert other.stdout.readline() == "holds\n"

        def asked(number: int) -> int:
            with transaction(connection, "shop.orders", keep=True) as db:
                (row,) = db.execute("SELECT ?", [number]).fetchall()
                return int(row[0])

        waiting = [pool.submit(asked, number) for number in range(60)]
        other.stdin.close()
        assert [one.result() for one in waiting] == list(range(60))


def test_dagster_shows_its_tables() -> None:
    flow = Flow("t", ["append"])
    flow.overrides["tables"] = [{"kind": "duckdb", "table": "shop.orders", "mode": "append"}]
    definitions = KafkaPipeline("p", PipelineSpec.model_validate(flow.spec_document)).definitions()
    (spec,) = [s for s in definitions.resolve_all_asset_specs() if s.key.path[0] == "duckdb"]
    assert spec.key.path[1:] == ["shop", "orders"]
    assert "duckdb" in spec.kinds


@pytest.mark.parametrize("block", [b for b in EXAMPLE if b.language not in ("bash", "yaml")], ids=str)
def test_blocks_of_the_guide_are_from_the_package(block: Block) -> None:
    wanted = block.text.rstrip()
    files = [file for pattern in ("*.toml", "**/*.py", "**/*.j2") for file in PACKAGE.glob(pattern)]
    # Methods stand in the guide without the indentation of their class.
    assert any(text in file.read_text() for text in (wanted, indent(wanted, "    ")) for file in files), wanted
