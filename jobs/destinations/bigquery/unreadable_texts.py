"""Texts that BigQuery cannot convert to the type of a column (`column_types`): one of them would stop the whole merge.

Only BigQuery knows which texts it can convert to a date, a number or a shape. So it is asked before rows are loaded,
about texts whose form leaves that open. Only plain forms are certain: days from the year 1000 on, times with at most
six digits after the point, numbers that no type rounds. BigQuery may be able to convert other texts as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.cloud.bigquery import ArrayQueryParameter

from jobs.destinations.bigquery.type_parameters import scale_of
from jobs.destinations.limits import Mask
from jobs.groups import groups
from resources.bigquery import BigQuery
from sql import render

# Digits after the point. BigQuery rounds texts that have more.
_SCALES = {"NUMERIC": 9, "BIGNUMERIC": 38}
# Bytes of texts in one query: a request may have 10 MB.
_MOST_BYTES = 8_000_000
# Bytes of syntax around each text.
_AROUND = 20

_MONTHS = r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
_LEAP_DAYS = r"(?:0[48]|[2468][048]|[13579][26])-02-29"
# A day after the first digit of its year.
_IN_IT = rf"\d(?:\d\d-{_MONTHS}|{_LEAP_DAYS})"
_DAY = rf"[1-9]{_IN_IT}"
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?"
_OFFSET = r"(?:0\d|1[0-3]):[0-5]\d"
_FORMS = {
    "DATE": _DAY,
    "TIME": _CLOCK,
    "DATETIME": f"{_DAY}[ T]{_CLOCK}",
    # West of UTC the last hours of 9999 are in the year 10000 in UTC, which BigQuery does not have.
    "TIMESTAMP": rf"{_DAY}[ T]{_CLOCK}(?:Z| UTC|\+{_OFFSET})?|[1-8]{_IN_IT}[ T]{_CLOCK}-{_OFFSET}",
    "NUMERIC": r"-?\d{1,28}(?:\.\d{1,9})?",
    # BigQuery has 38 digits before the point, the emulator 20.
    "BIGNUMERIC": r"-?\d{1,19}(?:\.\d{1,38})?",
}


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


def without_certain(texts: pa.Array, kind: str) -> pa.Array:
    """The texts that BigQuery has to be asked about before it converts them to this type."""
    if kind not in _FORMS:
        return texts
    return texts.filter(pc.invert(pc.match_substring_regex(texts, f"^(?:{_FORMS[kind]})$")))


def in_groups(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in groups that fit into a request; a larger text alone."""
    return groups(texts, _size, _MOST_BYTES)


def _size(text: str) -> int:
    """As it is sent: the client writes JSON in ASCII, in which a letter of another alphabet takes six bytes."""
    return len(json.dumps(text)) + _AROUND
