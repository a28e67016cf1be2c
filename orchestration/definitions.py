"""What Dagster loads: every pipeline of the folder, and what they share."""

from collections.abc import Sequence
from typing import Any

import dagster as dg
from dagster_shared.record import copy

from orchestration.executor import PRELOAD, step_processes
from orchestration.files import FOLDER
from orchestration.loading import load_folder
from orchestration.sensors.alert import failure_alert

# Steps at once of a run that is launched on assets of any pipelines, as every backfill is. A step mostly waits for its
# system, and one that hangs is not to stop the others: more than there are cores.
_AT_ONCE = 32


@dg.definitions
def defs() -> dg.Definitions:
    """Lazy: nothing is read before Dagster asks."""
    return with_shared(load_folder(FOLDER))


def with_shared(found: dg.Definitions) -> dg.Definitions:
    """The pipelines' definitions with one asset for each key, the sensors for all pipelines, and the executor of runs
    that are launched on assets, if they name none."""
    return copy(
        found,
        assets=_once(list(found.assets or [])),
        sensors=[*(found.sensors or []), failure_alert],
        executor=found.executor or step_processes(_AT_ONCE, PRELOAD),
    )


def _once(assets: Sequence[Any]) -> list[Any]:
    """Each asset once: two pipelines may read one topic, and a record may name a table of another pipeline. Keeps the
    asset that has a step, else the first one."""
    seen = {key for asset in assets if isinstance(asset, dg.AssetsDefinition) for key in asset.keys}
    kept = []
    for asset in assets:
        if isinstance(asset, dg.AssetSpec):
            if asset.key in seen:
                continue
            seen.add(asset.key)
        kept.append(asset)
    return kept
