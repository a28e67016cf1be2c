"""A decoder that puts whole records into one column."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, Decoder


class Nested:
    """Returns structs whose only field has the other decoder's value; null if that is null."""

    def __init__(self, inner: Decoder, name: str) -> None:
        self._inner, self.type = inner, pa.struct([pa.field(name, inner.type)])

    def decode(self, raw: pa.Array) -> Decoded:
        decoded = self._inner.decode(raw)
        values = pa.StructArray.from_arrays([decoded.values], fields=list(self.type), mask=pc.is_null(decoded.values))
        return replace(decoded, values=values)
