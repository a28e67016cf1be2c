"""What a command does to a pipeline's tables in a run of its own."""

from __future__ import annotations

import dagster as dg
import pytest

from orchestration.cli import in_turn
from resources.errors import TerminalError
from tests.kit import specs


def test_a_run_that_fails_before_its_step_works_is_an_error_with_its_reason(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dg.op
    def step() -> None:
        raise dg.Failure("no space left on device")

    @dg.job
    def job() -> None:
        step()

    failed = job.execute_in_process(instance=instance, raise_on_error=False)
    monkeypatch.setattr(in_turn, "execute", lambda *_, **__: failed)
    with pytest.raises(TerminalError, match=f"run {failed.run_id}: no space left on device"):
        in_turn._run(instance, "p", specs.spec(), "replay", True, lambda: (1, []))
