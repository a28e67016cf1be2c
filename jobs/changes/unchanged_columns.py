"""Which columns landed changes omit: the column `kept` of the intermediate table."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.changes.columns import UNCHANGED
from jobs.changes.landed_rows import LandedRows
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from jobs.spec.unchanged_columns import leaves_unchanged


def may_leave_unchanged(spec: PipelineSpec, table: Table, landed: LandedRows) -> bool:
    """Whether landed changes may omit columns of this table's rows.

    Not from the pipeline file alone: the intermediate table may hold batches of an earlier file, without `kept`.
    """
    if not leaves_unchanged(spec, table):
        return False
    return any(f.name == UNCHANGED.name for f in landed.catalog.require(landed.identifier).schema().fields)


def unchanged_parameters(names: Sequence[str]) -> dict[str, str]:
    """Query parameters with the names as they are landed."""
    return {f"unchanged_{number}": name for number, name in enumerate(names)}
