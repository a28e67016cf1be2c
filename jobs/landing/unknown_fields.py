"""Logs fields that are not landed because no column has them: once, not with every batch."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from jobs.iceberg.history import property_prefix
from jobs.iceberg.table_commit import TableCommit

_LOG = logging.getLogger("batchmerge")
_MOST_KEPT = 500
_MOST_SHOWN = 20


def unknown_field_properties(commit: TableCommit, unknown: Mapping[str, int]) -> dict[str, str]:
    """Logs fields that were never logged before; returns the table property that keeps their names."""
    name = property_prefix(commit.pipeline, commit.target) + "unknown-fields"
    known: list[str] = json.loads(commit.properties.get(name, "[]"))
    new = [field for field in unknown if field not in known]
    if not new:
        return {}
    some = ", ".join(f"{field} ({unknown[field]})" for field in new[:_MOST_SHOWN])
    _LOG.warning(
        "%s: no column takes these fields of records, and they are left out: %s%s (declare them, or choose by "
        "`source.value.unknown_fields`)",
        commit.identifier,
        some,
        f" and {len(new) - _MOST_SHOWN} more" if len(new) > _MOST_SHOWN else "",
        extra={"once": True},
    )
    return {name: json.dumps([*known, *new][-_MOST_KEPT:])}
