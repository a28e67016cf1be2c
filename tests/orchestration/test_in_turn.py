"""What a command does to a pipeline's tables in a run of its own."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext

from orchestration.cli import in_turn
from orchestration.names import COMMAND_TAG, COMMAND_WAITS, COMMAND_WORKS, PIPELINE_TAG
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


def test_a_command_waits_until_it_has_its_turn_and_takes_the_landing_last(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed, states = list[str](), list[str]()
    claim = InstanceConcurrencyContext.claim

    def noted(self: InstanceConcurrencyContext, pool: str, *arguments: Any) -> bool:
        claimed.append(pool)
        states.append(state())
        return claim(self, pool, *arguments)

    def state() -> str:
        (run,) = instance.get_runs(dg.RunsFilter(tags={PIPELINE_TAG: "p"}))
        return run.tags[COMMAND_TAG]

    monkeypatch.setattr(InstanceConcurrencyContext, "claim", noted)
    spec = specs.spec(specs.table("iceberg", name="a.t"), specs.table("iceberg", name="a.u"), commit="together")
    assert in_turn._run(instance, "p", spec, "replay", True, lambda: (state(), [])) == (COMMAND_WORKS, [])
    assert claimed == ["together/p", "landing/p"]
    assert set(states) == {COMMAND_WAITS}
