"""Texts that BigQuery cannot convert to the type of a column (`column_types`): one of them would stop the whole merge.

Only BigQuery knows which texts it can convert to a date, a number or a shape. So it is asked before rows are loaded,
about texts whose form leaves that open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.cloud.bigquery import ArrayQueryParameter

from jobs.destinations.bigquery.certain_texts import without_certain
from jobs.destinations.bigquery.limits import scale_of
from jobs.destinations.bigquery.text_groups import in_groups
from jobs.destinations.held_values import Mask
from resources.bigquery import BigQuery
from sql import render

# Digits after the point. BigQuery rounds texts that have more.
_SCALES = {"NUMERIC": 9, "BIGNUMERIC": 38}


@dataclass(frozen=True)
class AskedTexts:
    """Finds texts that a statement could not convert to this type, or only to another value; travels to workers."""

    bigquery: BigQuery
    where: str
    type: str

    def __call__(self, values: pa.Array) -> Mask:
        texts = without_certain(pc.unique(values.drop_null()), self.type)
        refused = [text for part in in_groups(texts.to_pylist()) for text in self._refused(part)]
        found = pc.is_in(values, value_set=pa.array(refused, values.type))
        return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)

    def _refused(self, texts: list[str]) -> list[str]:
        asked = ArrayQueryParameter("texts", "STRING", texts)
        found = self.bigquery.arrow(render("bigquery", "unreadable_texts", type=self.type), self.where, [asked])
        rounded = [text for text in texts if scale_of(text) > _SCALES[self.type]] if self.type in _SCALES else []
        return [*found["text"].to_pylist(), *rounded]
