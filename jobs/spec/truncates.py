"""The requirements of `envelope.truncates: apply`: an order that the truncation's record has too, and one source table.

A truncation has no key and no row. Its `order_by` value determines which rows and changes it removes, independent of
when they come and how the log is cut into batches (`jobs.watermark`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.decode.envelope_shape import OPERATION
from jobs.destinations.registry import kind_of
from jobs.schema.types import parse_columns
from resources.config_files.mistakes import Mistake

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec

_REMEDY = "or leave truncations out: `refuse` or `skip`"


def truncate_mistakes(spec: PipelineSpec) -> Iterator[Mistake]:
    """Why `truncates: apply` is refused; empty if it is not used."""
    envelope = spec.source.value.envelope
    if envelope is None or envelope.truncates != "apply":
        return
    path = ("source", "value", "envelope", "truncates")
    order = spec.changes.ordered_by
    types = {f.name: f.type for f in parse_columns(spec.source.row)}
    brought = order in envelope.metadata and order in types and envelope.metadata[order] != OPERATION
    if not (order and brought and pa.types.is_integer(types[order])):
        what = "`apply` goes by the order of changes, which has to be a whole number that a truncation brings too"
        remedy = "name a column of `envelope.metadata` in `changes.order_by`, for example `_lsn: source.lsn`"
        yield Mistake(path, what, f"{remedy}; {_REMEDY}")
    for text, remedy in _obstacles(spec):
        yield Mistake(path, f"`apply` {text}", f"{remedy}; {_REMEDY}")


def _obstacles(spec: PipelineSpec) -> Iterator[tuple[str, str]]:
    losing = [table for table in spec.tables if table.loses_rows]
    if len(spec.source.topics) != 1 and spec.source.for_each is None:
        yield "cannot tell which rows are of the table that was truncated, with several topics", "use `for_each: topic`"
    if spec.route_by or any(table.route for table in losing):
        yield "cannot tell which rows are of the table that was truncated, with routes", "leave the routes out"
    if spec.source.transform:
        yield "does not know what the transform makes of a truncation (source.transform)", "leave the transform out"
    for table in losing:
        if not kind_of(table).capabilities.truncates:
            what = f"cannot delete rows in {kind_of(table).title} ({table.table})"
            yield what, "use the mode append or upsert, where deletes do not count either"
