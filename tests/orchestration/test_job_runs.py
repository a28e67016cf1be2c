"""Runs of a command in its own process."""

import logging

import dagster as dg
from dagster._daemon.monitoring.run_monitoring import check_run_timeout

from orchestration.cli.job_runs import execute

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
