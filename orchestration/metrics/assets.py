"""Which asset stands for which table, from the pipeline files."""

from __future__ import annotations

import dagster as dg

from orchestration.files import pipeline_names, pipeline_spec
from orchestration.metrics.tables import LANDING
from orchestration.names import landing_key, table_key
from resources.errors import BatchmergeError


def pipeline_assets() -> dict[tuple[str, str], dg.AssetKey]:
    """Pipeline and table (``landing``, or kind and table) to asset key. Files that are wrong have no tables here."""
    found = {}
    for name in pipeline_names():
        try:
            tables = pipeline_spec(name).tables
        except BatchmergeError:
            continue
        found[name, LANDING] = landing_key(name)
        found |= {(name, f"{table.kind} {table.table}"): table_key(table) for table in tables}
    return found
