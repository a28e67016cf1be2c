"""The units of times that JSON has as numbers: one for all columns, or one for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Discriminator, Tag

from jobs.decode.json_dialect import OTHERS
from jobs.schema.types import inside, parse_columns
from resources.config_files.mistakes import Mistake, did_you_mean

Unit = Literal["s", "ms", "us", "ns"]
Units = Annotated[
    Annotated[Unit, Tag("one")] | Annotated[dict[str, Unit], Tag("by column")],
    Discriminator(lambda given: "by column" if isinstance(given, dict) else "one"),
]
BY_COLUMN = 'for all, or by column: `{"*": us, created: ms}` (without `"*"`, others have ms)'


def unit_mistakes(units: Unit | Mapping[str, Unit] | None, columns: Mapping[str, str]) -> Iterator[Mistake]:
    """Mistakes: units of what is no column of these with times, which is at least one."""
    if units is None or isinstance(units, str):
        return
    known = [field.name for field in parse_columns(columns) if _has_times(field.type)]
    for name in units:
        if name not in (*known, OTHERS):
            yield Mistake((name,), f"{name} is no column of timestamps", did_you_mean(name, known), at_key=True)


def _has_times(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) or any(_has_times(field.type) for field in inside(kind))
