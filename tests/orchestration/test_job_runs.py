"""Runs of a command in its own process."""

import logging
from errno import ENOSPC
from pathlib import Path

import dagster as dg
import pytest
from dagster._daemon.monitoring.run_monitoring import check_run_timeout

from orchestration.cli.instance import SETTINGS, dagster_home
from orchestration.cli.job_runs import execute
from orchestration.components.failures import as_failures
from resources.errors import ConfigurationError

_LOG = logging.getLogger(__name__)


def test_a_daemon_does_not_cancel_a_command_that_takes_long(instance: dg.DagsterInstance) -> None:
    @dg.op
    def step(context: dg.OpExecutionContext) -> None:
        record = instance.get_run_record_by_id(context.run_id)
        assert record
        assert record.start_time
        check_run_timeout(instance, record, _LOG, default_timeout_seconds=1e-9)

    @dg.job
    def job() -> None:
        step()

    result = execute(instance, job, {}, {}, wait=True)
    run = instance.get_run_by_id(result.run_id)
    assert run
    assert run.status == dg.DagsterRunStatus.SUCCESS
    assert not [log for log in instance.all_logs(run.run_id) if "maximum runtime" in log.message]


@pytest.mark.parametrize(
    ("problem", "shown"), [(KeyError("fleet"), True), (ConfigurationError("wrong", where="w", remedy="r"), False)]
)
def test_a_bug_in_a_step_shows_its_traceback(
    problem: Exception, shown: bool, instance: dg.DagsterInstance, capsys: pytest.CaptureFixture[str]
) -> None:
    @dg.op
    def step() -> None:
        with as_failures():
            raise problem

    @dg.job
    def job() -> None:
        step()

    execute(instance, job, {}, {}, wait=True)
    output = capsys.readouterr().err
    assert ("KeyError: 'fleet'" in output and "test_job_runs.py" in output) is shown
    assert ("Traceback" in output or "Stack Trace" in output) is shown


def test_settings_of_an_instance_are_written_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a file would be taken for a person's: without pools and run monitoring, and without a word."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))

    def refuse(*_: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "replace", refuse)
        with pytest.raises(OSError, match="No space"):
            dagster_home()
    assert not (tmp_path / "dagster.yaml").exists()
    assert (dagster_home() / "dagster.yaml").read_text() == SETTINGS.read_text()
