"""Which pools the steps of a pipeline hold: nobody else writes to a table while one of them does."""

from __future__ import annotations

from collections import defaultdict

import dagster as dg

from orchestration.components.launch import Launch
from orchestration.components.maintenance import maintained_pools
from tests.kit.flow import Flow
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
