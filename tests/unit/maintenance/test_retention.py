"""What the removal of landed batches does to an intermediate table in a catalog."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from jobs.batch import Counts, LandedBatch
from jobs.dead_letters.open_count import keep_count, open_count
from jobs.iceberg.append import Append
from jobs.landing.intermediate import IntermediateTable
from jobs.landing.publish import publish_batch
from jobs.maintenance.maintained_table import MaintainedTable
from jobs.maintenance.retention import retire
from jobs.spec.maintenance import Landed
from jobs.watermark import Watermark
from resources.iceberg import IcebergCatalog
from tests.kit import specs
from tests.kit.batches import batch, committed
from tests.kit.interrupting import dying_at


def test_removed_batches_take_no_open_dead_letter_along(lake: IcebergCatalog) -> None:
    """Batch 2 has recovered the dead letter of batch 1, batch 3 has one that is open; two are older than all of them.

    The number is right from the removal on, also if the run dies before the dead letters are counted.
    """
    place = IntermediateTable("p", specs.spec(), lake)
    place.prepare()
    for number, counts in enumerate([Counts(quarantined=1), Counts(recovered=1), Counts(quarantined=1)], start=1):
        append = Append(lake, place.identifier, "p", place.committed())
        publish_batch(append, LandedBatch(batch(number), counts, Watermark(), 0), {})
    keep_count(place, 3)
    merged = SimpleNamespace(committed=lambda: committed(1))
    pipeline: Any = SimpleNamespace(name="p", spec=place.spec, intermediate=place, destinations=lambda: [merged])
    maintained = MaintainedTable("p", lake, place.identifier, "main", merged=False, sort_by=(), attempt_seconds=1)
    with dying_at("maintenance.forgotten"):
        retire(Mock(), pipeline, maintained, Landed(keep_days=1))
    assert [b.number for b in place.landed().batches] == [2, 3]
    assert open_count(place) == 3
