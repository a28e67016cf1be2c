"""Keeps null lists and maps of structs null where pyiceberg reads or writes them; pyiceberg itself makes them empty.

It builds them again from their offsets alone (0.12: `ArrowProjectionVisitor`), and offsets know no nulls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import ArrowProjectionVisitor


def _with_nulls(projection: Callable[..., Any]) -> Callable[..., Any]:
    def projected(visitor: ArrowProjectionVisitor, kind: object, values: Any, *parts: Any) -> Any:
        found = projection(visitor, kind, values, *parts)
        if found is None or found.null_count == values.null_count:
            return found
        # The field ids in the type get lost on the way.
        return pc.if_else(values.is_valid(), found, pa.scalar(None, found.type)).view(found.type)

    return projected


for _name in ("list", "map"):
    setattr(ArrowProjectionVisitor, _name, _with_nulls(getattr(ArrowProjectionVisitor, _name)))
