"""The command line as people and scripts use it: help, a pipeline's day, exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from orchestration import cli
from resources.connections import Connections
from resources.local import processes
from resources.local.ports import free_port
from resources.local.service import Command
from resources.local.stack_state import add_ui
from tests.kit import specs
from tests.kit.command import Call, call_in_process
from tests.kit.connections_file import write_connections
from tests.kit.empty_instance import make_empty_instance
from tests.kit.flow import Flow, rows
from tests.kit.records import Record, bootstrap, produce

Topic = Callable[..., str]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs `batchmerge …` in this process; exit code, standard output, standard error."""

    return call_in_process(monkeypatch, capsys)


@pytest.fixture
def declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Flow], str]:
    """Makes a flow the only pipeline file of the project, on a Dagster instance of its own; its name."""

    def declare(flow: Flow) -> str:
        specs.write(tmp_path / "defs", flow.name, flow.spec_document)
        monkeypatch.setattr("orchestration.files.FOLDER", tmp_path / "defs")
        make_empty_instance(tmp_path / "dagster")
        monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
        return flow.name

    return declare


@pytest.mark.parametrize("name", sorted(cli._COMMANDS))
def test_help_says_what_it_does_and_takes(name: str) -> None:
    found = CliRunner().invoke(cli.batchmerge, [name, "--help"])
    assert found.exit_code == 0
    explained = found.output.split("\n\n")[1].strip()
    assert len(explained) > 20
    command = cli.batchmerge.get_command(click.Context(cli.batchmerge), name)
    assert command
    commands = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
    options = [p for c in commands for p in c.params if isinstance(p, click.Option)]
    assert [o.name for o in options if not o.help] == []
    assert all("json" in {option.name for option in c.params} for c in commands[1:] or commands)


@pytest.mark.parametrize(
    "arguments",
    [
        ["offsets", "set", "p", "orders-0=²"],
        ["offsets", "set", "p", "orders-²=1"],
        ["replay", "p", "--batches", "²"],
        ["replay", "p", "--batches", "1-²"],
        ["replay", "p", "--kafka-offsets", "orders-0=1:²"],
    ],
)
def test_numbers_that_are_none(arguments: list[str]) -> None:
    found = CliRunner().invoke(cli.batchmerge, arguments)
    assert (found.exit_code, "Error: " in found.output) == (2, True), found.exception


def test_a_day_of_a_pipeline(
    connections: Connections, topic: Topic, declared: Callable[[Flow], str], call: Call, tmp_path: Path
) -> None:
    flow = Flow(topic(), ["upsert_delete"], max_records=6, overrides={"retry": {"max_retries": 0}})
    name, table = declared(flow), flow.table("upsert_delete")
    changes = [Record(0, n % 5, {"id": n % 5, "name": f"n{n}", "amount": 1.0, "op": "u"}) for n in range(10)]
    produce(bootstrap(connections), flow.topic, changes)

    code, output, _ = call("plan", name, "--no-sql")
    assert (code, "batch 1 of up to 6 records; 10 wait in Kafka" in output) == (0, True)
    code, output, progress = call("run", name)
    assert (code, "6 read, 6 landed" in output, "landed batch 1" in progress) == (0, True, True)
    code, output, _ = call("status", "--json")
    (status,) = json.loads(output)["pipelines"]
    assert (code, json.loads(output)["daemon"]) == (0, False)
    assert (status["name"], status["last_error"]) == (name, None)
    assert [(t["batch"], t["lag"], t["problem"]) for t in status["tables"]] == [(1, 4, None), (1, 4, None)]
    assert status["tables"][1]["vtts"]
    code, output, _ = call("status")
    assert "No Dagster daemon runs: nothing starts by itself" in output
    assert f"pipeline {name}: its schedule (*/5 * * * *) starts runs" in output
    assert re.search(r"batch 1, 4 records(?: and \d+ \w+)? behind, complete through 20", output)
    assert "complete through: the table has every record of every partition up to this time" in output
    specs.write(tmp_path / "defs", "another", flow.spec_document)
    code, output, _ = call("status", name, "--json")
    assert (code, [one["name"] for one in json.loads(output)["pipelines"]]) == (0, [name])
    assert json.loads(output)["services"] == []
    assert [one["name"] for one in json.loads(call("status", "another", name, "--json")[1])["pipelines"]] == [
        "another",
        name,
    ]
    shutil.rmtree(tmp_path / "defs" / "another")  # it has the same tables
    code, output, error = call("status", "no_such_pipeline")
    assert (code, output, "there is no pipeline named 'no_such_pipeline'" in error) == (2, "", True)
    code, _, progress = call("run", name, "--until-caught-up")
    assert (code, "4 records wait in Kafka: 1 batch is landed first, then the table takes" in progress) == (0, True)
    assert rows(connections, table) == [(n, f"n{n + 5}", 1.0) for n in range(5)]
    yesterday = datetime.now(UTC) - timedelta(days=1)  # it may be midnight now
    code, output, _ = call("replay", name, "--from", f"{yesterday:%Y-%m-%d}")
    assert (code, "1 to 2" in output) == (0, True)
    assert rows(connections, table) == [(n, f"n{n + 5}", 1.0) for n in range(5)]
    code, output, _ = call("check", name, "--json")
    assert (code, [one for one in json.loads(output) if one["problem"]]) == (0, [])
    code, output, _ = call("verify", name)
    assert (code, "FAILED" in output) == (0, False)

    # Somebody else takes a row out: the table is not right.
    flow.pipeline(connections).intermediate.catalog.require(table).delete("id == 3")
    code, output, _ = call("verify", name)
    assert (code, "4 rows, landed changes make 5" in output) == (1, True)


@pytest.mark.slow
def test_a_paused_pipeline_is_run_only_on_purpose_and_a_paused_table_catches_up(
    connections: Connections, topic: Topic, declared: Callable[[Flow], str], call: Call
) -> None:
    flow = Flow(topic(), ["append", "upsert"], overrides={"retry": {"max_retries": 0}})
    name, kept, paused = declared(flow), flow.table("upsert"), flow.table("append")

    def produce_more(count: int) -> None:
        records = [Record(0, n, {"id": n, "name": "n", "amount": 1.0, "op": "u"}) for n in range(count)]
        produce(bootstrap(connections), flow.topic, records)

    produce_more(3)
    assert call("run", name)[0] == 0
    code, output, _ = call("pause", name, "--json")
    assert (code, json.loads(output)["runs"]) == (0, [])
    code, output, error = call("run", name, "--json")
    assert (code, json.loads(output)["error"]["class"]) == (2, "Paused")
    assert f"`batchmerge resume {name}`; or run it once with `--although-paused`" in error
    assert re.search(rf"nothing starts: {name} is paused by \S+ since 20", call("status")[1])
    produce_more(1)
    assert call("run", name, "--although-paused")[0] == 0
    assert len(rows(connections, paused)) == 4
    assert f"resumed: {name}, paused by" in call("resume", name)[1]

    assert call("pause", name, f"iceberg {paused}")[0] == 0
    produce_more(2)
    code, output, progress = call("restart", name, "--json")
    assert (code, "left out: iceberg/" in progress, len(json.loads(output)["steps"])) == (0, True, 2)
    assert (len(rows(connections, paused)), len(rows(connections, kept))) == (4, 3)
    assert "paused by" in next(line for line in call("status")[1].splitlines() if f"iceberg {paused}" in line)
    assert call("resume", name, f"iceberg {paused}")[0] == 0
    assert call("restart", name, f"iceberg {paused}")[0] == 0
    assert len(rows(connections, paused)) == 6


def test_mistakes_are_one_line_with_a_remedy_and_exit_codes_distinguish_them(
    stack: Path, tmp_path: Path, declared: Callable[[Flow], str], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = declared(Flow("no-such-topic", ["append"], overrides={"retry": {"max_retries": 0}}))
    code, output, error = call("plan", "no_such_pipeline")
    assert (code, output, error.count("\n")) == (2, "", 1)
    assert "there is no pipeline named 'no_such_pipeline'" in error
    assert name in error
    assert call("run", name, "--max-batches", "many")[0] == 2
    code, _, error = call("run", name)
    assert (code, "no-such-topic" in error, "Traceback" in error) == (2, True, False)
    assert "no-such-topic" in json.loads(call("status", "--json")[1])["pipelines"][0]["last_error"]

    nobody = {"kind": "kafka", "bootstrap_servers": "127.0.0.1:1", "timeout_seconds": 1}
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(write_connections(stack, tmp_path, kafka=nobody)))
    assert call("plan", name)[0] == 3
    code, output, _ = call("check", name)
    assert (code, "WRONG pipeline" in output) == (3, True)


@pytest.mark.parametrize("options", [("--host", "nosuch.invalid"), ("--host", "192.0.2.1"), ("--fresh", "0")])
def test_metrics_that_cannot_be_served_say_why(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, options: tuple[str, str]
) -> None:
    make_empty_instance(tmp_path / "dagster")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    code, _, error = call("metrics", *options)
    assert (code, options[1] in error, options[0] in error, "Traceback" in error) == (2, True, True, False)


def test_dagster_has_the_same_folders_wherever_it_starts_what(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code server and its runs have other working directories."""
    specs.write(tmp_path / "pipelines", "orders", specs.document())
    make_empty_instance(tmp_path / "dagster")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("orchestration.cli.ui.FOLDER", tmp_path / "pipelines")
    monkeypatch.setattr("orchestration.cli.ui.ends_when_asked", lambda _: None)
    named = {"BATCHMERGE_HOME": "home", "BATCHMERGE_PIPELINES": "pipelines", "BATCHMERGE_CONNECTIONS": "c.yaml",
             "DAGSTER_HOME": "dagster"}  # fmt: skip
    for name, path in named.items():
        monkeypatch.setenv(name, path)
    started: list[dict[str, str]] = []
    monkeypatch.setattr("os.execv", lambda *_: started.append({name: os.environ[name] for name in named}))
    code, _, error = call("ui", "--port", str(free_port(())))
    assert (code, error) == (0, "")
    assert started == [{name: str(tmp_path / path) for name, path in named.items()}]


def test_a_data_folder_has_one_page(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a daemon, and two daemons would start everything twice."""
    specs.write(tmp_path / "pipelines", "orders", specs.document())
    make_empty_instance(tmp_path / "dagster")
    monkeypatch.setattr("orchestration.cli.ui.FOLDER", tmp_path / "pipelines")
    monkeypatch.setattr("orchestration.cli.ui.ends_when_asked", lambda _: None)
    monkeypatch.setattr("os.execv", lambda *_: None)
    for name, folder in {"DAGSTER_HOME": "dagster", "BATCHMERGE_HOME": "home"}.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    page = processes.start(Command(["sleep", "600"]), tmp_path / "log", tmp_path)
    try:
        add_ui(tmp_path / "home", 3000, page)
        code, _, error = call("ui", "--port", str(free_port(())))
        assert (code, "at http://127.0.0.1:3000: " in error) == (2, True)
    finally:
        processes.stop(page)
    assert call("ui", "--port", str(free_port(())))[0] == 0, "that one has ended"


def test_a_connector_is_imported_into_a_folder_that_is_there(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestration.cli.connect_import.FOLDER", tmp_path)
    (tmp_path / "orders").mkdir()
    sink = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "t",
        "iceberg.tables": "n.t",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    (tmp_path / "sink.json").write_text(json.dumps({"name": "orders", "config": sink}))
    command = ("import", str(tmp_path / "sink.json"), "--no-offsets", "--columns", "{id: long}", "--write")
    assert call(*command)[0] == 0
    assert (tmp_path / "orders" / "defs.yaml").exists()
    assert "the file exists" in call(*command)[2]


def test_a_cancelled_command_says_so(stack: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    del stack

    def interrupted() -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr("orchestration.cli.check.pipeline_names", interrupted)
    code, _, error = call("check")
    assert (code, error.strip()) == (130, "cancelled")
