"""Logs fields that are not landed because no column has them: once, not with every batch."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from jobs.iceberg.table_commit import TableCommit
from jobs.iceberg.table_property import UNKNOWN_FIELDS
from jobs.spec.value import Value

_LOG = logging.getLogger("batchmerge")
_MOST_KEPT = 500
_MOST_SHOWN = 20


def unknown_field_properties(commit: TableCommit, value: Value, unknown: Mapping[str, int]) -> dict[str, str]:
    """Logs fields that were never logged before; returns the table property that keeps their names.

    Not those that the file says to ignore: if it stops to say so, they are logged.
    """
    if value.unknown_fields == "ignore":
        return {}
    known = UNKNOWN_FIELDS.read(commit.properties, commit.pipeline, commit.target)
    new = [field for field in unknown if field not in known]
    if not new:
        return {}
    some = ", ".join(f"{field} ({unknown[field]})" for field in new[:_MOST_SHOWN])
    _LOG.warning(
        "%s: no column takes these fields of records, and they are left out: %s%s (declare them%s)",
        commit.identifier,
        some,
        f" and {len(new) - _MOST_SHOWN} more" if len(new) > _MOST_SHOWN else "",
        "" if value.unknown_fields else ", or choose by `source.value.unknown_fields`",
        extra={"once": True},
    )
    return UNKNOWN_FIELDS.written([*known, *new][-_MOST_KEPT:], commit.pipeline, commit.target)
