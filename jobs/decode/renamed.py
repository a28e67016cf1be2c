"""A decoder for columns with other names than their fields in records."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from jobs.decode.base import Decoded, Decoder
from jobs.schema.renaming import Renaming


class Renamed:
    """Decodes with the records' names, and then renames the columns."""

    def __init__(self, inner: Decoder, renaming: Renaming) -> None:
        self._inner, self._renaming = inner, renaming
        self.type = renaming.as_columns(inner.type)

    def decode(self, raw: pa.Array) -> Decoded:
        decoded = self._inner.decode(raw)
        stay = {row: tuple(self._renaming.columns.get(n, n) for n in names) for row, names in decoded.unchanged.items()}
        # The same memory: only names differ.
        values = decoded.values.view(self.type)
        return replace(decoded, values=values, unchanged=stay, unknown=self._renaming.found(decoded.unknown))
