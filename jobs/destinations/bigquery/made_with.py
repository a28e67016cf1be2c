"""What the rows of a load were made with: a run with another pipeline file must not take them for its own. Pure.

A load that is done keeps its job id, and the next run finds it there. Its rows are the wanted ones only if the file
still makes the same of landed rows: so the load says in a label what they were made with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from jobs.changes.routing import route_filter
from jobs.destinations.bigquery.columns import Column
from jobs.destinations.bigquery.field import AnyField, Field, by_name
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.statements import order_column
from jobs.destinations.bigquery.type_parameters import is_limited
from jobs.spec.pipeline import PipelineSpec


def made_with(spec: PipelineSpec, table: BigQueryTable, columns: Sequence[Column], present: Sequence[AnyField]) -> str:
    """Hash of what shapes and judges the rows of the staging table, as a job's label may have it.

    Args:
        present: the fields of the destination table: some of its types leave less room than others.
    """
    order, there = order_column(spec, columns), by_name(present)
    limits = [Field.of(there[c.name.lower()]) for c in columns if is_limited(c, present)]
    shape = (route_filter(spec, table), table.mode, table.deletes_are_rows, order.source if order else None)
    # With the names of classes and attributes: under other ones a load of an earlier version would be done again.
    judges = (spec.on_bad_record, table.null_elements, table.out_of_range, limits)
    return hashlib.sha256(repr((tuple(columns), shape, judges)).encode()).hexdigest()[:16]
