"""`--json`: whatever a command does or refuses, its standard output is one JSON value."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from errno import EACCES, ENOENT, ENOSPC, EROFS
from pathlib import Path
from types import SimpleNamespace

import click
import dagster as dg
import pytest
from sqlalchemy.exc import OperationalError

from orchestration import cli, compute_logs
from orchestration.files import pipeline_spec
from orchestration.pauses import read_pauses
from resources.errors import BatchmergeError, ConfigurationError, Unavailable
from tests.kit import specs
from tests.kit.command import Call, call_in_process
from tests.kit.empty_instance import make_empty_instance
from tests.kit.flow import Flow

# Without connections: what a command finds by itself, or the first thing that it misses.
CALLS = [
    "init new",
    "up --only nothing",
    "down",
    "demo --no-such-option",
    "run p",
    "pause p",
    "resume p",
    "restart p",
    "replay p --from 2026-05-01",
    "maintain p",
    "plan p",
    "verify p",
    "check --files-only",
    "infer p",
    "offsets show p",
    "offsets set p t:0=1",
    "offsets reset p --to committed",
    "offsets forget p iceberg",
    "offsets take-over p --from q",
    "dead-letters list p",
    "dead-letters retry p",
    "import no-such-file",
    "ui --port 0",
    "metrics --once",
    "status",
]
USAGE_ERRORS = ["run p --max-batches many", "plan", "offsets", "no-such-command", "--no-such-option"]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs `batchmerge …` in this process, in a project of one pipeline and nothing else: exit code, output, errors."""
    flow = Flow("t", ["append"], name="p", overrides={"retry": {"max_retries": 0}})
    specs.write(tmp_path / "defs", flow.name, flow.spec_document)
    make_empty_instance(tmp_path / "dagster")
    monkeypatch.setattr("orchestration.files.FOLDER", tmp_path / "defs")
    for name, folder in {"DAGSTER_HOME": "dagster", "BATCHMERGE_HOME": "home"}.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.delenv("BATCHMERGE_CONNECTIONS", raising=False)
    monkeypatch.chdir(tmp_path)

    return call_in_process(monkeypatch, capsys)


def test_the_calls_are_of_every_command() -> None:
    context, commands = click.Context(cli.batchmerge), set[str]()
    for name in cli.batchmerge.list_commands(context):
        command = cli.batchmerge.get_command(context, name)
        commands |= {f"{name} {below}" for below in command.commands} if isinstance(command, click.Group) else {name}
    assert {next(one for one in commands if text.startswith(one)) for text in CALLS} == commands
    assert len(CALLS) == len(commands)


@pytest.mark.parametrize("text", [*CALLS, *USAGE_ERRORS])
def test_standard_output_is_one_json_value(text: str, call: Call) -> None:
    code, output, _ = call(*text.split(), "--json")
    found = json.loads(output)
    if isinstance(found, dict) and "error" in found:
        assert code in (2, 3)
        assert found["error"]["class"]
        assert found["error"]["what"]
    if text in USAGE_ERRORS:
        assert (code, "--help" in found["error"]["remedy"]) == (2, True)


def test_without_it_an_error_is_on_standard_error_alone(call: Call) -> None:
    assert call("plan", "p", "--no-such-option")[:2] == (2, "")


def test_nothing_of_it_outlives_the_command(call: Call) -> None:
    call("check", "--files-only", "--json")
    assert not cli.output.wanted()
    assert "p" in call("check", "--files-only")[1]


def test_nothing_of_it_stays_in_this_process(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME")
    before = _process()
    for text in ("metrics --once", "run p"):
        call(*text.split())
        assert _process() == before


def _process() -> dict[str, object]:
    """What a command changes in its process."""
    return {
        **{name: value for name, value in os.environ.items() if name.startswith(("BATCHMERGE_", "DAGSTER_"))},
        **{name: logging.getLogger(name).level for name in ("batchmerge", "dagster")},
        "handlers": [[*logging.getLogger(name).handlers] for name in ("batchmerge", "batchmerge.metrics")],
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "garbage": gc.get_threshold(),
        "in terminal": compute_logs._in_terminal,
    }


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_cancelled_command_is_an_error(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestration.cli.check.pipeline_names", _interrupted)
    code, output, error = call("check", "--json")
    assert (code, json.loads(output)["error"]["class"], error.strip()) == (130, "Cancelled", "cancelled")


def test_what_is_not_paused_may_be_resumed(call: Call) -> None:
    assert call("resume", "p")[:2] == (0, "p was not paused\n")


def test_a_pause_is_of_the_pipeline_also_as_shells_complete_its_folder(call: Call, tmp_path: Path) -> None:
    def paused() -> bool:
        with dg.DagsterInstance.from_config(str(tmp_path / "dagster")) as instance:
            return read_pauses(instance, "p", pipeline_spec("p")).whole is not None

    assert (json.loads(call("pause", "p/", "--json")[1])["pipeline"], paused()) == ("p", True)
    assert "p is paused by" in call("restart", "p/")[2]
    assert call("resume", "p/")[0] == 0
    assert not paused()


@pytest.mark.parametrize("command", ["pause", "resume", "restart"])
def test_an_empty_name_is_no_table_and_not_all_of_them(command: str, call: Call) -> None:
    """As of a variable that is not set."""
    code, output, error = call(command, "p", "")
    assert (code, output, "pipeline p has no table ''" in error) == (2, "", True)


@pytest.mark.parametrize("as_json", [True, False])
def test_watching_looks_again_until_it_is_ended(call: Call, monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    pauses = iter([lambda: None, _interrupted])
    monkeypatch.setattr("orchestration.cli.status.time", SimpleNamespace(sleep=lambda _: next(pauses)()))
    code, output, _ = call("status", "--watch", *(["--json"] if as_json else []))
    assert code == 130
    if as_json:
        looks = [json.loads(line) for line in output.splitlines()]
        assert [set(one) for one in looks] == [{"services", "daemon", "pipelines", "problem", "no_connections"}] * 2
    else:
        assert output.count("kafka ") == 2


def _by_a_catalog() -> Exception:
    found = ConfigurationError("no such warehouse")
    found.__cause__ = OperationalError("select 1", {}, OSError("no such table"))
    return found


@pytest.mark.parametrize(
    ("problem", "code", "message"),
    [
        (_by_a_catalog(), 2, "no such warehouse"),
        (OperationalError("select 1", {}, OSError("connection refused")), 3, "does not answer (connection refused)"),
        # The end of a password with an @ that was not encoded.
        (OperationalError("select 1", {}, OSError('no host "s3cret@db"')), 3, 'does not answer (no host "…@db")'),
        (dg.DagsterInvalidConfigError("no such setting", [], None), 2, "settings are wrong: no such setting"),
        (PermissionError(EACCES, "Permission denied", "/x/lock"), 2, "/x/lock: permission denied. Fix: "),
        (OSError(ENOSPC, "No space left on device"), 2, "no space left on device"),
        (FileNotFoundError(ENOENT, "No such file or directory", "/x"), 70, "FileNotFoundError"),
        (ValueError("odd"), 70, "ValueError: odd"),
    ],
)
def test_no_unexpected_error_looks_like_a_wrong_table(
    problem: Exception, code: int, message: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get() -> None:
        try:
            raise problem
        except OperationalError as cause:
            raise RuntimeError("too many retries") from cause  # as Dagster's storage in PostgreSQL does

    monkeypatch.setattr(dg.DagsterInstance, "get", get)
    found, _, error = call("pause", "p")
    assert (found, message in error) == (code, True)


def test_a_wrong_setting_of_dagster_is_named_without_its_value(call: Call, tmp_path: Path) -> None:
    database = "{username: u, password: 48151623, hostname: h, db_name: d}"
    (tmp_path / "dagster" / "dagster.yaml").write_text(f"storage: {{postgres: {{postgres_db: {database}}}}}\n")
    code, output, error = call("pause", "p", "--json")
    assert (code, "postgres_db:password. The value of type" in error) == (2, True)
    assert "48151623" not in output + error


def test_a_folder_that_has_only_the_settings_of_dagster_may_be_read_only(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a pod, where it is a config map; Dagster's database is elsewhere."""

    def refused(path: Path, _: object) -> AbstractContextManager[None]:
        raise OSError(EROFS, os.strerror(EROFS), str(path))

    monkeypatch.setattr("orchestration.cli.instance.exclusive", refused)
    (tmp_path / "dagster" / "dagster.yaml").write_text(f"storage: {{sqlite: {{base_dir: {tmp_path / 'elsewhere'}}}}}\n")
    code, output, error = call("pause", "p")
    assert (code, error, "p is paused" in output) == (0, "", True)
    # It has the database too, which cannot be opened then.
    (tmp_path / "read-only" / "history" / "runs.db").mkdir(parents=True)
    (tmp_path / "dagster" / "dagster.yaml").write_text(f"storage: {{sqlite: {{base_dir: {tmp_path / 'read-only'}}}}}\n")
    code, _, error = call("pause", "p")
    assert (code, "dagster/lock: read-only file system" in error) == (2, True)


@pytest.mark.parametrize("text", ["up", "run p", "init /dev/null/x"])
def test_a_folder_that_cannot_be_made_is_a_mistake(text: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME")
    monkeypatch.setenv("BATCHMERGE_HOME", "/dev/null/x")
    code, output, _ = call(*text.split(), "--json")
    error = json.loads(output)["error"]
    assert (code, error["what"], error["where"].startswith("/dev/null/x")) == (2, "not a directory", True)


@pytest.mark.parametrize("name", ["batchmerge", "json", "class"])
def test_a_project_hides_no_module_of_python(name: str, call: Call, tmp_path: Path) -> None:
    """Dagster puts the project's folder first: it would load nothing."""
    code, _, error = call("init", name)
    assert (code, f"{name} means something else in Python" in error, (tmp_path / name).exists()) == (2, True, False)


def test_no_hour_to_come_is_replayed(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[str, str]]()

    def run_job(*_: object, hours: tuple[str, str], **__: object) -> None:
        asked.append(hours)
        raise ConfigurationError("that is all")

    monkeypatch.setattr("orchestration.cli.replay.run_job", run_job)
    monkeypatch.setattr("orchestration.cli.replay._say_what_is_ahead", lambda *_: None)
    begun = datetime.now(UTC)
    assert call("replay", "p", "--from", "2026-05-01", "--to", "2999-01-01")[0] == 2
    ((first, last),) = asked
    assert first == "2026-05-01-00:00"
    assert f"{begun:%Y-%m-%d-%H:00}" <= last <= f"{datetime.now(UTC):%Y-%m-%d-%H:00}"


@pytest.mark.parametrize(("problem", "code"), [(Unavailable("silent"), 3), (ConfigurationError("no such table"), 2)])
def test_offsets_that_could_not_be_read_are_no_success(
    problem: BatchmergeError, code: int, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def committed() -> None:
        raise problem

    state, landed = SimpleNamespace(first={}, stable={}), SimpleNamespace(offsets={})
    tables = [SimpleNamespace(name="one", committed=lambda: landed), SimpleNamespace(name="two", committed=committed)]
    opened = SimpleNamespace(
        part_of=None,
        topic_state=lambda: state,
        intermediate=SimpleNamespace(committed=lambda: landed),
        destinations=lambda: tables,
    )
    monkeypatch.setattr("orchestration.cli.offsets.load_connections", lambda: None)
    monkeypatch.setattr("orchestration.cli.offsets.each_pipeline", lambda _, __, work: ([work(opened)], []))
    found, output, error = call("offsets", "show", "p", "--json")
    assert (found, f"two: {problem}" in error) == (code, True)
    assert set(json.loads(output)) == {"first in Kafka", "end in Kafka", "landed", "one"}


@pytest.mark.parametrize("named", [True, False])
def test_status_says_which_connections_file_it_misses(
    named: bool, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / ("mine.yaml" if named else "home/connections.yaml")
    if named:
        monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(file))
    code, output, _ = call("status")
    (line,) = [one for one in output.splitlines() if one.startswith("The pipelines cannot be asked. ")]
    assert code == 2
    assert f"{file}: the connections file does not exist (BATCHMERGE_CONNECTIONS" in line
    assert ("names it" if named else "is not set") in line
    assert "Fix: run `batchmerge up`" in line
    assert str(file) in json.loads(call("status", "--json")[1])["no_connections"]
    specs.write(tmp_path / "none", "p", {}).unlink()
    monkeypatch.setattr("orchestration.files.FOLDER", tmp_path / "none")
    assert call("status")[0] == 0, "there is no pipeline to ask"


def test_verify_that_compares_nothing_prints_no_table(call: Call) -> None:
    code, output, error = call("verify", "p")
    assert (code, output) == (2, "")
    assert "the connections file does not exist" in error
