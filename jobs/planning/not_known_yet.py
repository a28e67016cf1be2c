"""What only the first records will say of a pipeline's tables, and statements without it, for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.destinations.registry import kind_of
from jobs.spec.open_key import key_is_open, with_key

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec
    from jobs.spec.tables import Table

# What people see in place of the columns, and a name for it that every system allows.
_SHOWN = "…"
_STAND_IN = "batchmerge_not_known_yet"


def not_known_yet(spec: PipelineSpec) -> list[str]:
    """The columns without which there is no table to make (`jobs.protocol.has_no_columns`), and what gives them."""
    key = [f"the key columns (`{_SHOWN}`): the keys of the first records give them"] if key_is_open(spec) else []
    value = [] if spec.source.row else [f"the columns (`{_SHOWN}`): the values of the first records give them"]
    return key + value


def statement_of(spec: PipelineSpec, table: Table) -> str:
    """The statement that writes changes to the table (`Kind.statement`), with `…` in place of those columns."""
    return kind_of(table).statement(_with_stand_in(spec), table).replace(_STAND_IN, _SHOWN)


def _with_stand_in(spec: PipelineSpec) -> PipelineSpec:
    if key_is_open(spec):
        spec = with_key(spec, [pa.field(_STAND_IN, pa.string())])
    return spec if spec.source.row else spec.with_columns({_STAND_IN: "string"})
