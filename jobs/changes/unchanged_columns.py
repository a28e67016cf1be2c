"""Which columns landed changes leave as they were: what is in `kept` of the intermediate table."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from jobs.changes.columns import KEPT, RowColumn
from jobs.landing.landing_table import LandedRows
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from jobs.spec.unchanged_columns import row_can_keep
from sql import render


def may_keep(spec: PipelineSpec, table: Table, landed: LandedRows) -> bool:
    """Whether landed changes may leave columns of this table's rows as they were.

    The intermediate table says so, not the pipeline file alone: batches that were landed under an earlier one keep
    their meaning.
    """
    if not row_can_keep(spec, table):
        return False
    return any(f.name == KEPT.name for f in landed.catalog.require(landed.identifier).schema().fields)


def columns_kept(
    spark: SparkSession, table: tuple[str, ...], snapshot: int, first: int, last: int, columns: Sequence[RowColumn]
) -> tuple[RowColumn, ...]:
    """Those of a row's columns that some change of batches `first`..`last` leaves as they were.

    Asked first, since most batches have none: they are then merged as if nothing could be kept.
    """
    text = render("spark", "kept_columns", table=table, snapshot=snapshot)
    names = {row["name"] for row in spark.sql(text, args={"first": first, "last": last}).collect()}
    return tuple(c for c in columns if c.path[0] == "value" and c.path[-1] in names)


def kept_parameters(names: Sequence[str]) -> dict[str, str]:
    """Query parameters for the names as they are landed."""
    return {f"kept_{number}": name for number, name in enumerate(names)}
