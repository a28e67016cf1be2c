"""Runs of a pipeline under test through Dagster."""

from __future__ import annotations

import dagster as dg

from orchestration.cli.job_runs import RunResult, run_job
from orchestration.components import KafkaPipeline
from orchestration.definitions import with_shared
from tests.kit.flow import Flow


def definitions(*flows: Flow) -> dg.Definitions:
    """What Dagster sees of these pipelines."""
    every = [KafkaPipeline(flow.name, flow.spec).definitions() for flow in flows]
    return with_shared(dg.Definitions.merge(*every))


def advance(instance: dg.DagsterInstance, flow: Flow, **config: object) -> RunResult:
    """A plain run on the current hour."""
    return run_job(instance, definitions(flow), flow.name, config)


def events(instance: dg.DagsterInstance, result: RunResult, kind: dg.DagsterEventType) -> list[dg.DagsterEvent]:
    found = instance.all_logs(result.run_id, of_type=kind)
    return [entry.dagster_event for entry in found if entry.dagster_event]
