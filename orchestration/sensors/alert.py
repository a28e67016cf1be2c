"""Reports failed runs by webhook: once per failure, with pipeline, batch, error and remedy."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import dagster as dg
import requests
from dagster import DagsterEvent

from orchestration.names import PIPELINE_TAG
from orchestration.runs.runs_about import pipeline_tag
from orchestration.step_failures import failure_facts, failure_text, run_failure_text
from resources.errors import Unavailable

VARIABLE = "BATCHMERGE_ALERT_WEBHOOK"
_WILL_RETRY = "dagster/will_retry"
# Seconds to wait after each refused post. Dagster reports a failed run in one tick only, of at most a minute: so all
# tries are in this tick.
_PAUSES = (1.0, 4.0, 0.0)
# Seconds that the webhook has to answer one try.
_TIMEOUT = 10


@dg.run_failure_sensor(
    name="failure_alert",
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=30,
    description=f"Posts each failed run as JSON to the address in {VARIABLE}. Failures that Dagster retries by itself "
    "are reported only if the last try fails too.",
)
def failure_alert(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
    address = os.environ.get(VARIABLE)
    if not address:
        return dg.SkipReason(f"{VARIABLE} is not set")
    run = context.dagster_run
    if run.tags.get(_WILL_RETRY) == "true":
        return dg.SkipReason(f"run {run.run_id} is tried again")
    pipeline = _pipeline_of(run, context.repository_def)
    why = run_failure_text(context.instance, run.run_id, context.failure_event)
    _post(address, message(run, pipeline, context.get_step_failure_events(), why))
    return None


def _post(address: str, message: dict[str, Any]) -> None:
    """Posts the message, with a few tries.

    Raises:
        Unavailable: no try was accepted. The error does not name the address, which may hold a secret.
    """
    said = ""
    for pause in _PAUSES:
        try:
            answer = requests.post(address, json=message, timeout=_TIMEOUT)
            if answer.ok:
                return
            said = f"it answers {answer.status_code}"
        except requests.RequestException as problem:
            said = f"no answer ({type(problem).__name__})"
        time.sleep(pause)
    raise Unavailable(
        f"the webhook did not accept the failure of run {message['run_id']}: {said}",
        where=f"the address in {VARIABLE}",
        remedy="look at the run in Dagster: this failure is not reported again",
    )


def message(run: dg.DagsterRun, pipeline: str, failures: Sequence[DagsterEvent], why: str) -> dict[str, Any]:
    """The report. Its `text` alone has everything, for chats that show nothing else.

    Args:
        why: what ended the run, if no step of it has failed.
    """
    steps = [_step(event) for event in failures]
    texts = [f"batch {step['batch']}: {step['error']}" if step["batch"] else str(step["error"]) for step in steps]
    message = "; ".join(texts) or why
    return {
        "text": f"Batchmerge pipeline {pipeline} failed: {message} (run {run.run_id})",
        "pipeline": pipeline,
        "run_id": run.run_id,
        "job": run.job_name,
        "partition": run.tags.get("dagster/partition"),
        "steps": steps,
    }


def _step(event: DagsterEvent) -> dict[str, object]:
    facts = failure_facts(event)
    shown = {name: facts.get(name) for name in ("class", "where", "remedy")}
    return {"step": event.step_key, "error": failure_text(event), **shown, "batch": facts.get("fact batch")}


def _pipeline_of(run: dg.DagsterRun, loaded: dg.RepositoryDefinition | None) -> str:
    """The pipeline that the run names, or those whose assets it was launched on; else the name of the job."""
    if named := pipeline_tag(run):
        return named
    keys = {*(run.asset_selection or ()), *(check.asset_key for check in run.asset_check_selection or ())}
    assets = [loaded.asset_graph.get(key) for key in keys if loaded.asset_graph.has(key)] if loaded else []
    return ", ".join(sorted({one.tags[PIPELINE_TAG] for one in assets if PIPELINE_TAG in one.tags})) or run.job_name
