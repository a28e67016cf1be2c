"""Which records are routed to a table. Arrow and SQL make the same decision.

Arrow when a record is landed: one that is routed to no table becomes a dead letter. SQL when a table reads landed
changes (`sql/spark/taken.sql.j2`).

A delete whose field is null (a tombstone has no value) goes to every table that is routed by that field: it removes
its key there, and has no effect in tables without the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from jobs.changes.columns import value_fields
from jobs.spec.columns import key_fields
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.routing import find_field, whole
from jobs.spec.tables import Table


@dataclass(frozen=True)
class RouteFilter:
    """The records that are routed to one table.

    Attributes:
        topics: records of these topics; None: of all.
        path: of the field in a landed row; None: any value.
        pattern: a regular expression that the field's whole value must match.
        names: without a pattern, the names of which the field must be one, in lower case (A to Z only).
    """

    topics: tuple[str, ...] | None = None
    path: tuple[str, ...] | None = None
    pattern: str | None = None
    names: tuple[str, ...] | None = None

    @property
    def parameters(self) -> dict[str, str]:
        """Values of the SQL's named parameters."""
        topics = {f"route_topic_{n}": topic for n, topic in enumerate(self.topics or ())}
        names = {f"route_name_{n}": name for n, name in enumerate(self.names or ())}
        return {**topics, **names, **({"route_matches": whole(self.pattern)} if self.pattern else {})}

    def mask(self, topics: pa.Array, key: pa.Array | None, value: pa.Array | None, op: pa.Array) -> pa.Array:
        """True for each landed row that is routed to the table."""
        taken = pa.repeat(True, len(op))
        if self.topics is not None:
            taken = pc.is_in(topics.cast(pa.string()), value_set=pa.array(self.topics))
        if self.path is None:
            return taken
        struct, *parts = self.path
        field = pc.struct_field(key if struct == "key" else value, parts).cast(pa.string())
        if self.pattern is not None:
            fits = pc.match_substring_regex(field, whole(self.pattern))
        else:
            fits = pc.is_in(pc.ascii_lower(field), value_set=pa.array(self.names or (), pa.string()))
        nowhere = pc.and_(pc.is_null(field), pc.fill_null(pc.equal(op, "delete"), False))
        return pc.and_(taken, pc.or_(pc.fill_null(fits, False), nowhere))


def route_filter(spec: PipelineSpec, table: Table) -> RouteFilter | None:
    """The filter of this table; None: it gets all records."""
    route = table.route
    if spec.route_by:
        return RouteFilter(path=field_path(spec, spec.route_by), names=table_names(table))
    if route is None:
        return None
    path = field_path(spec, route.field) if route.field else None
    return RouteFilter(tuple(route.topics) if route.topics else None, path, route.matches)


def route_filters(spec: PipelineSpec) -> tuple[RouteFilter, ...] | None:
    """The filters of a pipeline's listed tables; None if one of them gets all records."""
    if spec.route_by:
        listed = [] if spec.new_tables else spec.tables
        names = dict.fromkeys(name for table in listed for name in table_names(table))
        return (RouteFilter(path=field_path(spec, spec.route_by), names=tuple(names)),)
    found = [route_filter(spec, table) for table in spec.tables]
    some = tuple(taken for taken in found if taken is not None)
    return some if len(some) == len(found) else None


def matched_by_none(
    tables: Sequence[RouteFilter], topics: pa.Array, key: pa.Array | None, value: pa.Array, op: pa.Array
) -> pa.Array:
    """True for each landed row that is routed to no table."""
    left = pa.repeat(True, len(value))
    for table in tables:
        left = pc.and_not(left, table.mask(topics, key, value, op))
    return left


def table_names(table: Table) -> tuple[str, ...]:
    """The values of a `route_by` field that mean this table: for a new table the name that records gave it; else the
    table's name, whole or its last part."""
    if table.named:
        return (table.named.name,)
    name = table.table.lower()
    return name, name.rsplit(".", 1)[-1]


def field_path(spec: PipelineSpec, field: str) -> tuple[str, ...]:
    """The path of a field in a landed row."""
    found = find_field(field, key_fields(spec), value_fields(spec))
    assert found is not None, "checked when the pipeline file was loaded"
    return found[0]
