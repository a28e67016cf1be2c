"""Decoders around another decoder: they nest its column, rename its columns, or leave out fields that it found."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, Decoder
from jobs.schema.found_fields import Excluded, FoundField, FoundFields, Path, without_paths
from jobs.schema.renaming import Renaming


class Nested:
    """Puts whole records into one column: structs whose only field is the other decoder's value; null if it is null."""

    def __init__(self, inner: Decoder, name: str) -> None:
        self._inner, self.type = inner, pa.struct([pa.field(name, inner.type)])

    def decode(self, raw: pa.Array) -> Decoded:
        decoded = self._inner.decode(raw)
        values = pa.StructArray.from_arrays([decoded.values], fields=list(self.type), mask=pc.is_null(decoded.values))
        return replace(decoded, values=values)


class Renamed:
    """For columns with other names than their fields: decodes with the records' names, and then renames the columns."""

    def __init__(self, inner: Decoder, renaming: Renaming) -> None:
        self._inner, self._renaming = inner, renaming
        self.type = renaming.as_columns(inner.type)

    def decode(self, raw: pa.Array) -> Decoded:
        decoded = self._inner.decode(raw)
        stay = {row: tuple(self._renaming.column((n,))[0] for n in names) for row, names in decoded.unchanged.items()}
        # The same memory: only names differ.
        values = decoded.values.view(self.type)
        return replace(decoded, values=values, unchanged=stay, unknown=self._renaming.found(decoded.unknown))


class Excluding:
    """Does not report fields that must not become a column or a part of one (`exclude`), as if no record had them.

    Columns, errors and rescued fields do not contain them either.
    """

    def __init__(self, inner: Decoder, excluded: Excluded) -> None:
        self.type, self._inner, self._excluded = inner.type, inner, excluded

    def decode(self, raw: pa.Array) -> Decoded:
        decoded = self._inner.decode(raw)
        return replace(decoded, unknown=_without(decoded.unknown, self._excluded)) if decoded.unknown else decoded


def _without(found: FoundFields, excluded: Excluded) -> FoundFields:
    kept: dict[Path, FoundField] = {}
    for path, one in found.by_path.items():
        if any(path[:n] in excluded for n in range(1, len(path) + 1)):
            continue
        kind = None if one.type is None else without_paths(one.type, excluded, path)
        if kind is not None or one.type is None:
            kept[path] = replace(one, type=kind)
    return replace(found, by_path=kept)
