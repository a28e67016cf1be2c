"""Results of parts, added field by field."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Self


@dataclass(frozen=True)
class Added:
    """Base of dataclasses whose fields can all be added; the one without arguments is the sum of nothing."""

    def __add__(self, other: Self) -> Self:
        return replace(self, **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})
