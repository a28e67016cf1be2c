"""What Dagster loads: every pipeline of the folder, and what they share."""

from collections.abc import Iterable
from typing import Any

import dagster as dg

from orchestration.files import FOLDER
from orchestration.loading import load_folder
from orchestration.sensors.alert import failure_alert


@dg.definitions
def defs() -> dg.Definitions:
    """Lazy: nothing is read before Dagster asks."""
    return with_shared(load_folder(FOLDER))


def with_shared(found: dg.Definitions) -> dg.Definitions:
    """The pipelines' definitions with one asset per topic, whoever reads it, and the sensors for all pipelines."""
    return dg.Definitions(
        assets=_topics_once(found.assets or []),
        asset_checks=found.asset_checks,
        schedules=found.schedules,
        sensors=[*(found.sensors or []), failure_alert],
        jobs=found.jobs,
        resources=found.resources,
        executor=found.executor,
        loggers=found.loggers,
        metadata=found.metadata,
        component_tree=found.component_tree,
    )


def _topics_once(assets: Iterable[Any]) -> list[Any]:
    """Pipelines that read the same topic each name it; the first one's description stays."""
    seen: set[dg.AssetKey] = set()
    kept = []
    for asset in assets:
        if isinstance(asset, dg.AssetSpec):
            if asset.key in seen:
                continue
            seen.add(asset.key)
        kept.append(asset)
    return kept
