"""Names of tables that records bring (`new_tables`): found by the pass that decodes, kept with the landed table.

A batch and the names that are new in it are one commit. So whoever opens the pipeline knows the same tables, and a
table begins with the batch that first named it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from jobs.changes.routing import field_path
from jobs.decode.base import DecodeError
from jobs.decode.verdicts import Verdicts
from jobs.iceberg.history import property_prefix
from jobs.iceberg.table_commit import TableCommit
from jobs.spec.new_tables import refused_names
from jobs.spec.pipeline import PipelineSpec

_LOG = logging.getLogger("batchmerge")
_SHOWN = 100
STAGE = "route"


@dataclass(frozen=True)
class NameRule:
    """Which names that no table has may become tables; travels to Spark's workers.

    Attributes:
        path: where the name is in a landed row.
        known: names that have tables.
        allow: what others must match as a whole, in lower case.
        most: how many tables there may be.
        settled: the verdict on each new name of the batch, None where it becomes a table; None: still to be made.
    """

    path: tuple[str, ...]
    known: frozenset[str]
    allow: str
    most: int
    settled: Mapping[str, str | None] | None = None

    def judge(self, left: pa.Array, key: pa.Array | None, value: pa.Array, verdicts: Verdicts) -> dict[str, int]:
        """Refuses the records whose names may be no tables; returns the others' new names, each with its first row.

        Args:
            left: true per record that none of the pipeline file's own tables takes.
        """
        rows = pc.indices_nonzero(left)
        struct, *parts = self.path
        field = pc.struct_field(key if struct == "key" else value, parts).take(rows)
        found, reasons = dict[str, int](), dict[str, str | None]()
        for row, name in zip(rows.to_pylist(), pc.ascii_lower(field.cast(pa.string())).to_pylist(), strict=True):
            if name in self.known or row in verdicts.errors or row in verdicts.skipped:
                continue
            if name not in reasons:
                reasons[name] = self._refusal(name)
            if reason := reasons[name]:
                verdicts.refuse(row, DecodeError("NoTable", reason, STAGE))
            else:
                found.setdefault(name, row)
        return found

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

    def after(self, found: Mapping[str, int], spec: PipelineSpec) -> NameRule | None:
        """The rule for reading the batch once more; None where every new name may become a table.

        Those that come first in the batch have it, so that the same ranges give the same tables.
        """
        new = sorted(found, key=lambda name: (found[name], name))
        wrong = refused_names(spec, sorted(self.known), new)
        room = [name for name in new if name not in wrong][: self.most - len(self.known)]
        if len(room) == len(new):
            return None
        return NameRule(self.path, self.known, self.allow, self.most, {**wrong, **dict.fromkeys(room)})


def name_rule(spec: PipelineSpec, known: Iterable[str]) -> NameRule | None:
    """The rule of a pipeline; None where records name no tables."""
    if spec.new_tables is None or spec.route_by is None:
        return None
    path = field_path(spec, spec.route_by)
    return NameRule(path, frozenset(known), spec.new_tables.allow, spec.new_tables.most)


def known_names(properties: Mapping[str, str], pipeline: str) -> dict[str, int]:
    """Each name that has become a table, with the first batch that has it, from the landed table's properties."""
    found: dict[str, int] = json.loads(properties.get(_property(pipeline), "{}"))
    return found


def tell_new_tables(commit: TableCommit, names: Iterable[str], batch: int) -> dict[str, str]:
    """The table property that remembers new names."""
    known = known_names(commit.properties, commit.pipeline)
    new = sorted(set(names) - known.keys())
    if not new:
        return {}
    _LOG.info("%s: new tables for %s", commit.identifier, ", ".join(new))
    return {_property(commit.pipeline): json.dumps({**known, **dict.fromkeys(new, batch)})}


def _property(pipeline: str) -> str:
    return property_prefix(pipeline, "main") + "tables"
