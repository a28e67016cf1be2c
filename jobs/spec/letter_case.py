"""The option `ignore_case`: which pipelines can have it, and which names it would make equal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from resources.config_files.mistakes import Mistake

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec


def case_mistakes(spec: PipelineSpec) -> Iterator[Mistake]:
    """Mistakes about `ignore_case` in a pipeline file."""
    if not spec.ignore_case:
        return
    own = [e for topic in spec.source.per_topic.values() for e in (topic.key, topic.value)]
    encodings = [e for e in (spec.source.value, spec.source.key, *own) if e]
    other = sorted({e.format for e in encodings if e.format in ("avro", "protobuf", "connect_json") or e.registry})
    for name in other:
        what = f"it works with plain JSON, not with {name}, whose schemas name the fields"
        yield Mistake(("ignore_case",), what, "leave it out")
    # Of the value's columns, and those of the tables' key, a rule of all pipelines says it.
    fields = [] if spec.source.key is None else list(spec.source.key.struct)
    for path in sorted({path for field in fields for path in _differ_by_case(field.name, field.type)}):
        what = f"{path} differs from another field by upper and lower case only"
        yield Mistake(("ignore_case",), what, "leave it out, or declare one of them")


def _differ_by_case(path: str, kind: pa.DataType) -> Iterator[str]:
    """Paths of fields inside a column whose names differ from another field's only in case."""
    inside = [kind.field(n) for n in range(kind.num_fields)]
    lower = [field.name.lower() for field in inside]
    for field in inside:
        if lower.count(field.name.lower()) > 1:
            yield f"{path}.{field.name}"
        yield from _differ_by_case(f"{path}.{field.name}", field.type)
