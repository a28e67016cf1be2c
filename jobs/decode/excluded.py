"""Fields that must not become a column or a part of one (`exclude`): as if no record had them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa

from jobs.decode.base import Decoded, Decoder
from jobs.schema.found_fields import FoundField, FoundFields, Path, without_paths


class Excluding:
    """A decoder that does not report excluded fields. Columns, errors and rescued fields do not contain them either."""

    def __init__(self, inner: Decoder, excluded: Collection[Path]) -> None:
        self.type, self._inner, self._excluded = inner.type, inner, frozenset(excluded)

    def decode(self, raw: pa.Array) -> Decoded:
        decoded = self._inner.decode(raw)
        return replace(decoded, unknown=without(decoded.unknown, self._excluded)) if decoded.unknown else decoded


def without(found: FoundFields, excluded: frozenset[Path]) -> FoundFields:
    kept: dict[Path, FoundField] = {}
    for path, one in found.by_path.items():
        if any(path[:n] in excluded for n in range(1, len(path) + 1)):
            continue
        kind = None if one.type is None else without_paths(one.type, excluded, path)
        if kind is not None or one.type is None:
            kept[path] = replace(one, type=kind)
    return replace(found, by_path=kept)
