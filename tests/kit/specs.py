"""Pipeline files for tests, as small as can be: a test says only what it is about."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from resources.config_files.models import examine

Part = Mapping[str, Any]
T = TypeVar("T", bound=Table)
ID = {"id": "long"}


def table(kind: str = "iceberg", mode: str = "append", name: str = "n.t", **options: object) -> dict[str, Any]:
    return {"kind": kind, "table": name, "mode": mode, **options}


def document(
    *tables: Part,
    columns: Mapping[str, str] | None = None,
    key: Mapping[str, str] | str | None = None,
    value: Part | None = None,
    source: Part | None = None,
    changes: Part | None = None,
    **parts: object,
) -> dict[str, Any]:
    """The attributes of a pipeline file; without tables it appends to one.

    Args:
        columns: of the value; by default an `id`.
        key: columns of the records' keys, all of them the tables' key; a name: that column of the value, by arrival.
        value, source, changes: their other parts, or some in place of the usual ones.
    """
    read: dict[str, Any] = {"topics": ["t"], "value": {"columns": columns or ID, **(value or {})}}
    keyed: dict[str, Any] = {}
    if isinstance(key, str):
        keyed = {"key": {"columns": [key], "source": "value"}, "order_by": "arrival"}
    elif key is not None:
        read["key"], keyed["key"] = {"columns": key}, {"columns": [*key]}
    return {
        "source": {**read, **(source or {})},
        "changes": {**keyed, **(changes or {})},
        "tables": list(tables) or [table()],
        **parts,
    }


def spec(*tables: Part, **parts: Any) -> PipelineSpec:
    """The pipeline of such a `document`."""
    return PipelineSpec.model_validate(document(*tables, **parts))


def entry(spec: PipelineSpec, kind: type[T]) -> T:
    """The first table, which is of this kind."""
    found = spec.tables[0]
    assert isinstance(found, kind)
    return found


def write(folder: Path, name: str, attributes: Part) -> Path:
    """The pipeline file of this name in a folder of them, new or in place of the one before."""
    path = folder / name / "defs.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    file = {"type": "batchmerge.KafkaPipeline", "attributes": dict(attributes)}
    path.write_text(yaml.safe_dump(file, sort_keys=False))
    return path


def mistakes(attributes: object) -> list[str]:
    """The mistakes in such attributes, as a person sees them."""
    return [mistake.sentence for mistake in examine(PipelineSpec, attributes).mistakes]


# With a key, an operation and an order to refer to, for tests that change one thing in it.
RIGHT = document(
    table(mode="upsert_delete"),
    columns={"id": "long", "name": "string", "op": "string", "version": "long"},
    key=ID,
    changes={"op": {"field": "op"}},
)
TAKEN_OUT = "(taken out)"


def changed(changes: Part) -> dict[str, Any]:
    """The `RIGHT` document with parts replaced, or taken out, by their dotted paths."""
    made = copy.deepcopy(RIGHT)
    for path, value in changes.items():
        *outer, last = (int(step) if step.isdigit() else step for step in path.split("."))
        at: Any = made
        for step in outer:
            at = at.setdefault(step, {}) if isinstance(at, dict) else at[step]
        if value == TAKEN_OUT:
            del at[last]
        else:
            at[last] = value
    return made
