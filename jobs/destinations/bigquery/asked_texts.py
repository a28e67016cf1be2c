"""Texts that BigQuery cannot convert to the type of a column (`column_types`): one of them would stop the whole merge.

Only BigQuery can tell what it reads as a date, a number or a shape, so it is asked before the rows are sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.cloud.bigquery import ArrayQueryParameter

from jobs.destinations.held_values import Mask
from resources.bigquery import BigQuery
from sql import render

# Of one question: a request may have 10 MB. Around each text there is some syntax.
_MOST_BYTES = 5_000_000
_AROUND = 16


@dataclass(frozen=True)
class AskedTexts:
    """Finds texts that a statement could not convert to this type, or only to another value; travels to workers."""

    bigquery: BigQuery
    where: str
    type: str

    def __call__(self, values: pa.Array) -> Mask:
        texts = pc.unique(values.drop_null())
        refused = [text for part in _parts(texts.to_pylist()) for text in self._refused(part)]
        found = pc.is_in(values, value_set=pa.array(refused, values.type))
        return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)

    def _refused(self, texts: list[str]) -> list[str]:
        asked = ArrayQueryParameter("texts", "STRING", texts)
        found = self.bigquery.arrow(render("bigquery", "unreadable_texts", type=self.type), self.where, [asked])
        return [str(text) for text in found["text"].to_pylist()]


def _parts(texts: list[str]) -> Iterator[list[str]]:
    part, size = list[str](), 0
    for text in texts:
        length = len(text.encode()) + _AROUND
        if part and size + length > _MOST_BYTES:
            yield part
            part, size = [], 0
        part.append(text)
        size += length
    if part:
        yield part
