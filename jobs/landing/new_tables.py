"""Names of tables that records bring (`new_tables`): found by the pass that decodes, kept with the intermediate table.

A batch and its new names are one commit. So everyone who opens the pipeline sees the same tables, and a table begins
with the batch that first named it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from jobs.changes.routing import field_path
from jobs.decode.base import DecodeError
from jobs.decode.verdicts import Verdicts
from jobs.iceberg.table_commit import TableCommit
from jobs.iceberg.table_property import NEW_TABLES
from jobs.landing.task_report import TaskReport
from jobs.spec.added_columns import adds_columns
from jobs.spec.new_tables import Named, allowed, refused_names
from jobs.spec.pipeline import PipelineSpec

_LOG = logging.getLogger("batchmerge")
_SHOWN = 100
STAGE = "route"


@dataclass(frozen=True)
class NameRule:
    """Which new names may become tables; travels to Spark's workers.

    Attributes:
        path: of the name in a landed row.
        known: names that have tables, each with the columns for which its records have had values.
        allow: a regular expression that a new name must match as a whole, in lower case.
        most: the largest number of tables.
        reports_columns: columns come from records, and each table has only those of its own records.
        settled: the verdict on each new name of the batch: a reason, or None: it becomes a table. None: not known yet.
    """

    path: tuple[str, ...]
    known: Mapping[str, Named]
    allow: str
    most: int
    reports_columns: bool = False
    settled: Mapping[str, str | None] | None = None

    def takes_none(self, left: pa.Array, key: pa.Array | None, value: pa.Array) -> pa.Array:
        """True for each of these records that names no table, or one that is not allowed."""
        names = self._names(key, value)
        allowed = re.compile(self.allow).fullmatch
        wrong = [name for name in names.filter(left).unique().to_pylist() if name is None or not allowed(name)]
        return pc.and_(left, pc.is_in(names, value_set=pa.array(wrong, pa.string())))

    def judge(self, left: pa.Array, key: pa.Array | None, value: pa.Array, verdicts: Verdicts) -> dict[str, int]:
        """Refuses the records whose names cannot become tables; returns the others' new names, each with its first row.

        Args:
            left: true for each record that is not routed to one of the pipeline file's own tables.
        """
        names = self._names(key, value)
        rows = pc.indices_nonzero(pc.and_not(left, pc.is_in(names, value_set=pa.array(list(self.known), pa.string()))))
        found, reasons = dict[str, int](), dict[str, str | None]()
        for row, name in zip(rows.to_pylist(), names.take(rows).to_pylist(), strict=True):
            if row in verdicts.errors or row in verdicts.filtered:
                continue
            if name not in reasons:
                reasons[name] = self._refusal(name)
            if reason := reasons[name]:
                verdicts.refuse(row, DecodeError("NoTable", reason, STAGE))
            else:
                found.setdefault(name, row)
        return found

    def columns(self, key: pa.Array | None, value: pa.Array) -> dict[str, frozenset[str]]:
        """For each name the columns that have values for the first time; `value` is null for bad records."""
        if not self.reports_columns or not len(value):
            return {}
        fields = [field.name for field in value.type]
        present = [pc.is_valid(pc.struct_field(value, [name])) for name in fields]
        numbered = [str(n) for n in range(len(fields))]
        rows = pa.table([self._names(key, value), *present], names=["name", *numbered])
        found = rows.group_by("name", use_threads=False).aggregate([(n, "any") for n in numbered]).to_pylist()
        new_columns = dict[str, frozenset[str]]()
        for row in (row for row in found if row["name"] is not None):
            own = {name for n, name in zip(numbered, fields, strict=True) if row[f"{n}_any"]}
            known = self.known.get(row["name"])
            if new := frozenset(own.difference(known.columns if known else ())):
                new_columns[row["name"]] = new
        return new_columns

    def _names(self, key: pa.Array | None, value: pa.Array) -> pa.Array:
        struct, *parts = self.path
        return pc.ascii_lower(pc.struct_field(key if struct == "key" else value, parts).cast(pa.string()))

    def _refusal(self, name: str | None) -> str | None:
        if name is None:
            return "the field that names the table is null"
        shown = repr(name if len(name) <= _SHOWN else name[:_SHOWN] + "…")
        if self.settled is not None and name in self.settled:
            return self.settled[name]
        if not re.fullmatch(self.allow, name):
            return f"no table takes {shown}: `new_tables.allow` is {self.allow}; widen it, then retry the dead letter"
        if self.settled is not None or len(self.known) >= self.most:
            return (
                f"no table takes {shown}: there are as many as `new_tables.most` says, {self.most}; raise it, then "
                "retry the dead letter"
            )
        return None

    def makes(self, name: str) -> bool:
        """Whether the settled verdict on this new name is that it becomes a table."""
        return self.settled is not None and name in self.settled and self.settled[name] is None

    def after(self, found: Mapping[str, int], spec: PipelineSpec) -> NameRule | None:
        """The rule for reading the batch again; None if every new name may become a table.

        Names that come first in the batch get the tables that are still free, so the result is deterministic.
        """
        new = sorted(found, key=lambda name: (found[name], name))
        wrong = refused_names(spec, sorted(self.known), new)
        room = [name for name in new if name not in wrong][: self.most - len(self.known)]
        if len(room) == len(new):
            return None
        return replace(self, settled={**wrong, **dict.fromkeys(room)})


def name_rule(spec: PipelineSpec, known: Mapping[str, Named]) -> NameRule | None:
    """The rule of a pipeline; None if its records name no tables."""
    if spec.new_tables is None or spec.route_by is None:
        return None
    path, limits = field_path(spec, spec.route_by), spec.new_tables
    return NameRule(path, allowed(spec, known), limits.allow, limits.most, adds_columns(spec))


def known_names(properties: Mapping[str, str], pipeline: str) -> dict[str, Named]:
    """The names that have become tables, from the intermediate table's properties."""
    found = NEW_TABLES.read(properties, pipeline).items()
    return {name: Named(name, first, tuple(columns)) for name, (first, columns) in found}


def new_table_properties(commit: TableCommit, found: TaskReport, batch: int) -> dict[str, str]:
    """Returns the table property that keeps new names and their new columns; logs new names."""
    known = known_names(commit.properties, commit.pipeline)
    new = sorted(found.names.keys() - known.keys())
    if new:
        _LOG.info("%s: new tables for %s", commit.identifier, ", ".join(new))
    now = {**known, **{name: Named(name, batch) for name in new}}
    for name, columns in found.columns.items():
        now[name] = replace(now[name], columns=tuple(sorted({*now[name].columns, *columns})))
    if now == known:
        return {}
    return NEW_TABLES.written({name: (one.first, one.columns) for name, one in now.items()}, commit.pipeline)
