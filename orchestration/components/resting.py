"""Tables of many (`for_each`, `new_tables`) that hung: later runs leave them out for a while, so that the others of
their entry have the step for themselves. The materialization of the entry says until when."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime

import dagster as dg

from orchestration.components import metadata
from resources.errors import BatchmergeError, TimeLimitReached

# A topic that has hung, and held up the others, is left out for this many times as long.
RESTS = 3
_UNTIL = "rests until"


def rest(problem: BatchmergeError) -> dict[str, float]:
    """What the materialization says of a topic with this problem: the end of its rest, if it has one, in seconds since
    the epoch."""
    if not isinstance(problem, TimeLimitReached):
        return {}
    seconds, until = problem.facts.get("seconds"), problem.facts.get(_UNTIL)
    if isinstance(until, float):
        return {_UNTIL: until}
    return {_UNTIL: time.time() + RESTS * seconds} if isinstance(seconds, int | float) else {}


def resting(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str, BatchmergeError]:
    """The topics that rest now, by the newest materialization of this entry."""
    event, now = instance.get_latest_materialization_event(key), time.time()
    failed = failed_topics(event.asset_materialization if event else None)
    ends = {topic: one.get(_UNTIL) for topic, one in failed.items()}
    return {topic: _left_out(topic, until) for topic, until in ends.items() if isinstance(until, float) and until > now}


def failed_topics(made: dg.AssetMaterialization | None) -> Mapping[str, dict[str, object]]:
    """The topics that failed, from the metadata of a step's materialization."""
    said = made.metadata.get(metadata.FAILED) if made else None
    return said.value if isinstance(said, dg.JsonMetadataValue) and isinstance(said.value, dict) else {}


def _left_out(topic: str, until: float) -> TimeLimitReached:
    return TimeLimitReached(
        f"left out until {datetime.fromtimestamp(until, UTC):%H:%M:%S} UTC: it hung and held up the others",
        where=topic,
        remedy="run `batchmerge run <pipeline>/<topic>` to try it now",
        **{_UNTIL: until},
    )
