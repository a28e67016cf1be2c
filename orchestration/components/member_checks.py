"""The checks of a landing of many topics: what is wrong of any of them, also of those that had nothing new now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as Status

from jobs.members import Members
from jobs.pipeline import Pipeline
from orchestration.components import checks

_ENDED = {Status.SUCCEEDED, Status.FAILED}


def landing_results_of_topics(
    instance: dg.DagsterInstance,
    members: Members,
    key: dg.AssetKey,
    found: Mapping[str, Sequence[dg.AssetCheckResult]],
) -> list[dg.AssetCheckResult]:
    """The results of the topics that were landed, together. A topic whose fields were left out is looked at until they
    have columns; all topics each time would be hundreds of tables.

    Args:
        found: by topic.
    """

    def look(pipeline: Pipeline) -> list[dg.AssetCheckResult]:
        return [checks.fields_result(key, pipeline.spec, pipeline.intermediate.landed().batches)]

    every = replace(members, topics=())
    before = wrong_before(instance, dg.AssetCheckKey(key, checks.FIELDS)) - found.keys()
    again = [member for member in every.known() if member.topic in before]
    looked = {outcome.topic: outcome.done or [] for outcome in every.each("checks", again, look)}
    return checks.combined_results(key, checks.landing_checks(key), {**looked, **found})


def wrong_before(instance: dg.DagsterInstance, check: dg.AssetCheckKey) -> set[str]:
    """The tables, or topics, that were wrong by the newest result of a check of several."""
    newest = instance.event_log_storage.get_asset_check_execution_history(check, limit=1, status=_ENDED)
    evaluation = newest[0].evaluation if newest else None
    said = evaluation.metadata.get(checks.WRONG_OF) if evaluation else None
    return (
        set(map(str, said.value)) if isinstance(said, dg.JsonMetadataValue) and isinstance(said.value, list) else set()
    )
