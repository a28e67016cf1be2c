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
_RESTS = 3
UNTIL = "rests until"


def rest(problem: BatchmergeError, begins: bool = True) -> dict[str, float]:
    """What the materialization says of a topic with this problem: the end of its rest, if it has one, in seconds since
    the epoch.

    Args:
        begins: it rests from now on, if it does not already. Where all others hang too, it holds up nobody.
    """
    if not isinstance(problem, TimeLimitReached):
        return {}
    seconds = problem.facts.get("seconds")
    if begins and UNTIL not in problem.facts and isinstance(seconds, int | float):
        problem.facts[UNTIL] = time.time() + _RESTS * seconds
    until = problem.facts.get(UNTIL)
    return {UNTIL: until} if isinstance(until, float) else {}


def resting(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str, BatchmergeError]:
    """The topics that rest now, by the newest materialization of this entry."""
    event, now = instance.get_latest_materialization_event(key), time.time()
    failed = failed_topics(event.asset_materialization if event else None)
    ends = {topic: one.get(UNTIL) for topic, one in failed.items()}
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
        **{UNTIL: until},
    )
