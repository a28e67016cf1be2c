"""The `transform` of a pipeline file: one Spark SQL `select … from records`, checked when the file is loaded.

It is applied to each decoded record before landing. `jobs.spec.transform_statement` reads the statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pydantic import Field, model_validator

from jobs.spec.base import Spec, TypeText
from resources.kafka_records import HEADERS, INSTANT

RECORDS = "records"
REFUSED = "_refused"
METADATA = {
    "_topic": pa.string(),
    "_partition": pa.int32(),
    "_offset": pa.int64(),
    "_timestamp": INSTANT,
    "_headers": HEADERS,
}
KEY = "_key"
# Columns that the evaluation adds to `records` (`jobs.landing.transform`), besides `__raw_…`.
_EVALUATION = ("__problem", "__filtered", "__unknown", "__usable", "__passes", "__refused")


def is_taken(name: str, has_key: bool) -> bool:
    """Whether `records` has a column of this name besides the value's, to Spark, which ignores case."""
    return name.lower() in (*METADATA, REFUSED) or is_evaluated(name, has_key)


def is_evaluated(name: str, has_key: bool) -> bool:
    """Whether the evaluation itself reads a column of this name, whatever the statement does."""
    lower = name.lower()
    return lower in _EVALUATION or lower.startswith("__raw_") or (has_key and lower == KEY)


class Transform(Spec):
    """The transform of a decoded record before it is landed."""

    sql: str = Field(
        description="a Spark SQL `select … from records`. Records that do not meet its `where` are left out. "
        "`records` has the value's columns, `_key` (a struct), `_topic`, `_partition`, `_offset`, "
        "`_timestamp`, `_headers`. If the column `_refused` is not null, the record is bad, with that "
        "text as the reason"
    )
    columns: dict[str, TypeText] = Field(
        default_factory=dict, description="types of result columns whose type is not clear from the statement"
    )

    @model_validator(mode="before")
    @classmethod
    def _statement_alone(cls, given: Any) -> Any:
        return {"sql": given} if isinstance(given, str) else given


@dataclass(frozen=True)
class Cast:
    """A cast to a type, or what `to_timestamp` reads from a text in a format (Spark SQL, as written)."""

    kind: pa.DataType
    form: str | None = None


@dataclass(frozen=True)
class Conversion:
    """What a result column is made from (Spark SQL, as written), and the casts to it."""

    given: str
    casts: tuple[Cast, ...]


@dataclass(frozen=True)
class Resolved:
    """A transform, resolved against a schema.

    Attributes:
        expressions: from column to its expression, in Spark SQL as written.
        conversions: of result columns that are conversions.
        condition: the condition of `where`; None: every record is kept.
        columns: from result column to its type string.
        reads: columns of `records` that are used.
        passes: it has a bare `*`, so that columns which records bring pass through it.
        unchanged: columns of the value that are result columns as they are.
        reads_of: of each result column the columns of the value that it is made of.
    """

    expressions: Mapping[str, str]
    conversions: Mapping[str, Conversion]
    condition: str | None
    columns: Mapping[str, str]
    reads: frozenset[str]
    passes: bool
    unchanged: frozenset[str]
    reads_of: Mapping[str, frozenset[str]]

    @property
    def made(self) -> frozenset[str]:
        """Result columns that the statement makes."""
        return frozenset(self.columns) - self.unchanged
