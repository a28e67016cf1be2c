"""`envelope.unavailable: keep`: which pipelines can leave a column of a row unchanged, and which columns.

A change that omits a column needs the earlier changes of its key, or the row in the table. A table of mode `append` or
`delete` has one row per change, so an omitted column is null. Some systems can only write whole rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from jobs.decode.envelope_shape import EnvelopeRules
from jobs.decode.unavailable import may_hold
from jobs.destinations.registry import kind_of
from jobs.schema.types import parse_columns
from jobs.spec.envelope import Envelope
from jobs.spec.tables import Table
from resources.config_files.mistakes import Mistake

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec

_REMEDY = "set REPLICA IDENTITY FULL in the source, so that nothing is left out, or `unavailable: null`"


def can_leave_unchanged(table: Table) -> bool:
    """Whether a row of the table can keep the value of a column that a change omits."""
    return kind_of(table).capabilities.keeps_unchanged_columns and table.has_unique_key


def leaves_unchanged(spec: PipelineSpec, table: Table) -> bool:
    """Whether changes of this pipeline may omit columns of the table's rows."""
    return can_leave_unchanged(table) and bool(unchanged_columns(spec)) and spec.changes.ordered_by is None


def unavailable(spec: PipelineSpec) -> Literal["refuse", "null", "keep"]:
    """What to do with a column that Debezium omits; by default `keep` if every table can do it."""
    envelope = _debezium(spec)
    if envelope is None:
        return "refuse"
    if envelope.unavailable is None:
        return "keep" if all(map(can_leave_unchanged, spec.tables)) and not any(_obstacles(spec)) else "refuse"
    if envelope.unavailable == "keep" and not any(map(can_leave_unchanged, spec.tables)):
        return "null"
    return envelope.unavailable


def keep_mistakes(spec: PipelineSpec) -> Iterator[Mistake]:
    """Why `unavailable: keep` is refused; empty if it is not used."""
    envelope = _debezium(spec)
    if envelope is None or envelope.unavailable != "keep":
        return
    for text in _obstacles(spec):
        yield Mistake(("source", "value", "envelope", "unavailable"), f"`keep` {text}", _REMEDY)


def unchanged_columns(spec: PipelineSpec) -> tuple[str, ...]:
    """Columns of the value that a change may omit; empty if the envelope is not Debezium's.

    Not `not null` columns: without an earlier row they would be null.
    """
    if _debezium(spec) is None:
        return ()
    key, op = spec.changes.key, spec.changes.op
    others = {*(key.columns if key else ()), *([op.field] if op else ())}
    fields = parse_columns(spec.source.row)
    return tuple(f.name for f in fields if f.nullable and may_hold(f.type) and f.name not in others)


def envelope_rules(spec: PipelineSpec, moved: bool = False) -> EnvelopeRules | None:
    """The value's envelope for the decoder; None without one.

    Args:
        moved: for primary-key changes whose omitted values are known from the old key.
    """
    envelope = spec.source.value.envelope
    if envelope is None:
        return None
    wanted = unavailable(spec)
    return replace(
        envelope.rules,
        unavailable="null" if wanted == "null" else "refuse",
        may_be_unchanged=frozenset(unchanged_columns(spec) if wanted == "keep" else ()),
        moved=moved,
        key=_key(spec),
        of_deletes=_of_deletes(spec),
        dialect=spec.source.value.dialect,
    )


def _of_deletes(spec: PipelineSpec) -> frozenset[str] | None:
    """The columns of a deleted row that the pipeline looks at; None: any, for a transform, a route, or tables in which
    deletes are rows."""
    routed = spec.route_by or any(t.route and t.route.field for t in spec.tables)
    if spec.source.transform or routed or any(t.deletes_are_rows for t in spec.tables):
        return None
    order = spec.changes.ordered_by
    return _key(spec) | ({order} if order else set())


def _key(spec: PipelineSpec) -> frozenset[str]:
    """The key's columns, if any table has a row a key."""
    key = spec.changes.key
    return frozenset(key.columns) if key and any(t.needs_key for t in spec.tables) else frozenset()


def _debezium(spec: PipelineSpec) -> Envelope | None:
    envelope = spec.source.value.envelope
    return envelope if envelope and envelope.kind.startswith("debezium") else None


def _obstacles(spec: PipelineSpec) -> Iterator[str]:
    whole_rows = [t for t in spec.tables if t.needs_key and not kind_of(t).capabilities.keeps_unchanged_columns]
    order = spec.changes.ordered_by
    if whole_rows:
        systems = " and ".join(sorted({kind_of(t).title for t in whole_rows}))
        yield f"needs the row before, and {systems} ({', '.join(t.table for t in whole_rows)}) takes whole rows"
    if order and any(map(can_leave_unchanged, spec.tables)):
        yield f"goes by the order of arrival, and a change of an older {order} can arrive late (changes.order_by)"
    if spec.source.transform:
        yield "does not know what the transform makes of a left-out value (source.transform)"
