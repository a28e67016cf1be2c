"""Columns that are added while a batch is landed, for fields without a column (`unknown_fields: add`).

The pass that decodes finds the fields and their types. Only if it has found any, the tables get the columns and the
same ranges are read again: a producer's new field costs one batch a second pass, and other batches nothing. If a field
cannot become a column, its records become dead letters, so that nothing is lost. New tables (`new_tables`) need a
second pass only if a name cannot become a table. Fields that a transform keeps from becoming columns need none: they
are counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from jobs.destinations.takes import Taking, takes_nothing
from jobs.failpoints import failpoint
from jobs.iceberg.append import Append
from jobs.landing.batch_records import BatchRecords
from jobs.landing.new_tables import NameRule
from jobs.landing.ranges import LandedRanges
from jobs.schema.found_fields import NOTHING_FOUND
from jobs.spec.added_columns import Additions, additions, adds_columns, left_out
from jobs.spec.pipeline import PipelineSpec

_LOG = logging.getLogger("batchmerge")

Written = tuple[BatchRecords, Append, LandedRanges]
Write = Callable[[PipelineSpec, Mapping[str, str] | None, NameRule | None], Written]


def write_with_new_columns(
    spec: PipelineSpec, write: Write, evolve: Callable[[PipelineSpec], object], taking: Taking = takes_nothing
) -> Written:
    """Writes a batch, and a second time if its records have fields that become columns.

    Args:
        write: writes all records to new files. Its arguments: the pipeline file; the fields that cannot become columns,
            and why; and the verdicts on new tables' names. The last two are None if not known yet.
        evolve: adds the columns of this pipeline file to the intermediate table.
        taking: what the destination tables accept.
    """
    written = write(spec, None, None)
    records, append, landed = written
    names = records.names_after(landed.report)
    fields = landed.report.fields
    lost = left_out(spec, fields) if adds_columns(spec) else NOTHING_FOUND
    # Fields that the report does not name may become columns too.
    brought = adds_columns(spec) and (len(fields.by_path) > len(lost.by_path) or fields.more > 0)
    if not brought and names is None:
        return written
    found = additions(spec, fields, taking, records.table) if brought else Additions(spec)
    _log_columns(append.identifier, found)
    if found.added:
        evolve(found.spec)
        failpoint("land.evolved")
    records, append, landed = write(found.spec, found.refused, names)
    # A second pass reports no fields of a pipeline that adds columns.
    report = replace(landed.report, fields=landed.report.fields + lost)
    return records, append, replace(landed, report=report, new_columns=found.descriptions)


def _log_columns(where: str, found: Additions) -> None:
    for name, kind in found.descriptions.items():
        text = "%s: column %s becomes wider: %s" if name in found.before else "%s: new column %s %s"
        _LOG.info(text, where, name, kind, extra={"once": True})
    for name, reason in found.refused.items():
        text = (
            "%s: the field %s can be no column (%s): its records are dead letters; see `rename`, `exclude` of the value"
        )
        _LOG.warning(text, where, name, reason)
