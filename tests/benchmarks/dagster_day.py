"""A day of 1-minute schedules in a Dagster instance, of one pipeline among fifty: how long its pages' queries take.

Bound to hold: at most twice as long as after ten runs, or under half a second. Starts no services.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from typing import Any

import dagster as dg
from dagster._core.events import StepMaterializationData
from dagster._core.test_utils import create_run_for_test
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster_graphql.schema import create_schema

from orchestration.names import PIPELINE_TAG
from tests.benchmarks._fifty import INSIDE, in_project, load

_PAGES = {
    "page of runs": """{ runsFeedOrError(limit: 30, view: RUNS) { ... on RunsFeedConnection {
        results { id runStatus creationTime tags { key value } } } } }""",
    "page of a table's events": """{ assetOrError(assetKey: {path: %(table)s}) { ... on Asset {
        assetMaterializations(limit: 100) { timestamp runId metadataEntries { label
          ... on IntMetadataEntry { intValue } ... on FloatMetadataEntry { floatValue } } } } } }""",
    "lineage of all assets": """{ assetNodes { assetKey { path } assetMaterializations(limit: 1) { timestamp }
        assetChecksOrError { ... on AssetChecks { checks { name
          executionForLatestMaterialization { status } } } } } }""",
}


# One file of events instead of one a run: as in PostgreSQL all pages read one table, and it is written in minutes.
_ONE_FILE = {"module": "dagster._core.storage.event_log", "class": "ConsolidatedSqliteEventLogStorage"}
_FEW, _DAY = 10, 1440


def main() -> int:
    return in_project("tests.benchmarks.dagster_day", "flights")


def inside() -> int:
    """In the project with the fifty pipelines: one of them has run for a day."""
    _, definitions = load()
    jobs = [job.name for job in definitions.get_repository_def().get_all_jobs()]
    name = next(job.removesuffix("_plan") for job in sorted(jobs) if job.endswith("_plan"))
    with tempfile.TemporaryDirectory() as folder:
        storage = {"event_log_storage": {**_ONE_FILE, "config": {"base_dir": folder}}}
        with dg.instance_for_test(overrides=storage) as instance:
            fill(instance, definitions, name, _FEW)
            before = time_pages(instance, definitions, name)
            began = time.monotonic()
            fill(instance, definitions, name, _DAY - _FEW)
            print(f"{_DAY:,} runs of events are written in {time.monotonic() - began:.0f} s", flush=True)
            after = time_pages(instance, definitions, name)
    for page, seconds in after.items():
        print(f"{page}: {before[page] * 1000:.0f} ms after {_FEW} runs, {seconds * 1000:.0f} ms after {_DAY:,}")
    return 0 if all(seconds < max(0.5, 2 * before[page]) for page, seconds in after.items()) else 1


def fill(instance: dg.DagsterInstance, definitions: dg.Definitions, pipeline: str, runs: int) -> None:
    """So many runs that succeeded, each with the materializations and checks that it would have."""
    job = definitions.resolve_job_def(pipeline)
    keys = sorted(job.asset_layer.executable_asset_keys)
    # One check an asset: what a page shows of a run, at a third of the time to write it.
    checks = list({check.asset_key: check for check in job.asset_layer.asset_graph.asset_check_keys}.values())
    for _ in range(runs):
        run = create_run_for_test(
            instance,
            job_name=pipeline,
            run_id=str(uuid.uuid4()),
            status=dg.DagsterRunStatus.SUCCESS,
            tags={PIPELINE_TAG: pipeline, "dagster/partition": "2026-05-01-12:00"},
        )
        for event in _events(pipeline, keys, checks):
            instance.report_dagster_event(event, run.run_id)


def _events(pipeline: str, keys: list[dg.AssetKey], checks: list[dg.AssetCheckKey]) -> Iterator[dg.DagsterEvent]:
    numbers = dict.fromkeys(("lag", "batches", "last batch", "changes", "inserted", "updated", "deleted", "read"), 1)
    for key in keys:
        made = dg.AssetMaterialization(key, metadata=dict(numbers), partition="2026-05-01-12:00")
        data = StepMaterializationData(made)
        yield dg.DagsterEvent("ASSET_MATERIALIZATION", pipeline, event_specific_data=data)
    for check in checks:
        done = dg.AssetCheckEvaluation(asset_key=check.asset_key, check_name=check.name, passed=True, metadata={})
        yield dg.DagsterEvent("ASSET_CHECK_EVALUATION", pipeline, event_specific_data=done)


def time_pages(instance: dg.DagsterInstance, definitions: dg.Definitions, pipeline: str) -> dict[str, float]:
    """Median seconds of five queries of each page."""
    keys = sorted(definitions.resolve_job_def(pipeline).asset_layer.executable_asset_keys)
    key = next(k for k in keys if k.path[0] == "iceberg")
    path = "[" + ", ".join(f'"{part}"' for part in key.path) + "]"
    schema, found = create_schema(), {}
    target = ModuleTarget("orchestration.definitions", None, os.getcwd(), "batchmerge")
    with WorkspaceProcessContext(instance, target) as process:
        for page, text in _PAGES.items():
            taken = []
            for _ in range(6):
                began = time.monotonic()
                _ask(schema, process, text.replace("%(table)s", path))
                taken.append(time.monotonic() - began)
            found[page] = statistics.median(taken[1:])
    return found


def _ask(schema: Any, process: Any, text: str) -> None:
    async def ask() -> Any:
        return await schema.execute_async(text, context_value=process.create_request_context())

    answer = asyncio.run(ask())
    assert not answer.errors, answer.errors


if __name__ == "__main__":
    sys.exit(inside() if sys.argv[1:] == [INSIDE] else main())
