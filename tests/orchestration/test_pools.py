"""Which pools the steps of a pipeline hold: nobody else writes to a table while one of them does."""

from __future__ import annotations

from collections import defaultdict

import dagster as dg
import pytest
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext
from dagster._core.storage.event_log import SqlEventLogStorage
from dagster._core.test_utils import create_run_for_test

from orchestration.components.launch import Launch
from orchestration.components.maintenance import maintained_pools
from orchestration.pools.pool_waits import PoolWaits, waiting_for_pools
from tests.kit.flow import Flow
from tests.kit.waiting import until
from tests.orchestration.launching import definitions


def _pools(flow: Flow) -> dict[str, set[str | None]]:
    """Per table (or landing) the pools of all ops that write to it, in runs and backfills."""
    found = defaultdict[str, set[str | None]](set)
    for op in definitions(flow).resolve_job_def(flow.name).all_node_defs:
        assert isinstance(op, dg.OpDefinition)
        found[op.name.removeprefix(f"{flow.name}__")].add(op.pool)
    return dict(found)


def _of_maintenance(flow: Flow) -> set[str]:
    return set(maintained_pools(Launch(flow.name, flow.spec)))


def test_each_table_has_a_pool_of_its_own() -> None:
    flow = Flow("t", ["append", "upsert"], name="p")
    found = _pools(flow)
    assert found == {
        "landing__p": {"landing/p"},
        "iceberg__tests__p_append": {"iceberg/tests/p_append"},
        "iceberg__tests__p_upsert": {"iceberg/tests/p_upsert"},
    }
    assert _of_maintenance(flow) == set[str | None]().union(*found.values())


def test_tables_that_commit_together_share_one() -> None:
    flow = Flow("t", ["append", "upsert", "upsert_delete"], name="p", overrides={"commit": "together"})
    found = _pools(flow)
    assert len(found) == 4
    assert found.pop("landing__p") == {"landing/p"}
    assert set(map(frozenset, found.values())) == {frozenset({"together/p"})}
    assert _of_maintenance(flow) == {"landing/p", "together/p"}


def test_a_pool_that_is_freed_while_a_claim_is_queued_is_given_to_it(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, run = instance.event_log_storage, create_run_for_test(instance, job_name="p")
    storage.set_concurrency_slots("iceberg/n/t", 1)
    is_free, looks = SqlEventLogStorage.has_unassigned_slots, list[bool]()

    def held_at_first(found: SqlEventLogStorage, pool: str) -> bool:
        looks.append(is_free(found, pool))
        return looks[-1] and len(looks) > 1

    monkeypatch.setattr(SqlEventLogStorage, "has_unassigned_slots", held_at_first)
    claims = InstanceConcurrencyContext(instance, run)
    with claims, waiting_for_pools(PoolWaits(instance, pytest.fail)):
        assert not claims.claim("iceberg/n/t", "step")
        until(lambda: claims.claim("iceberg/n/t", "step"))
    assert looks == [True, True]
