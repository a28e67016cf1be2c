"""The changes of a range of landed batches, reduced and applied to an attempt's branch by Spark SQL.

The mode's filter comes before the reduction to one change per key, so that the result does not depend on where the
log was cut into batches (DESIGN section 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession

from jobs.batch import MergeCounts
from jobs.changes.reduction import Reduction
from jobs.iceberg import spark_writes
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.rows import with_all_columns
from jobs.schema.types import type_name
from sql import render

_VIEW = "batchmerge_changes"


@dataclass(frozen=True)
class Changes:
    """The landed changes of a reduction, for one destination table.

    Attributes:
        wanted: which changes, and what they are reduced to; what they leave as it was is found here.
        tombstones: table that remembers the order of deletes; None where no order is named.
        null_safe: null equals null in a key.
        keeps: changes may leave columns as they were.
        missing: only rows that the table lacks; for replay of tables without a unique key.
        recreated: topics that were recreated since the table has rows (`jobs.lineage.recreated_topics`).
    """

    spark: SparkSession
    wanted: Reduction
    tombstones: tuple[str, ...] | None
    null_safe: bool
    keeps: bool = False
    missing: bool = False
    recreated: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def missing_in(self, recreated: Mapping[str, Sequence[int]]) -> Changes:
        """Only rows that the table lacks."""
        return replace(self, missing=True, recreated=recreated)

    def append_to(self, attempt: Attempt) -> None:
        """Appends every change that is not a delete, as it was landed."""
        rows = with_all_columns(self._sql(self._text(attempt)), [c.name for c in self.wanted.columns], attempt.schema)
        spark_writes.append(rows, attempt.path, attempt.summary)

    def effect_on(self, attempt: Attempt) -> MergeCounts:
        """Keeps the reduced changes at hand for the merge, and counts what it is going to do."""
        self.spark.catalog.dropTempView(_VIEW)
        self._sql(self._text(attempt)).createOrReplaceTempView(_VIEW)
        self.spark.catalog.cacheTable(_VIEW)
        effect = self.spark.sql(self._render("merge_effect", attempt), args=self._bound_values).first()
        assert effect is not None, "an aggregate has one row"
        return MergeCounts(self._bounds["changes"], effect["inserted"], effect["updated"], effect["deleted"])

    def merge_into(self, attempt: Attempt, summary: dict[str, str]) -> None:
        """One MERGE on the attempt's branch; its snapshot carries the summary."""
        if self.tombstones:
            self.spark.sql(self._render("keep_tombstones", attempt))
        # The session is this table's own, and the attempt's id in the summary is checked before publishing.
        with spark_writes.with_summary(self.spark, summary):
            self.spark.sql(self._render("merge", attempt), args=self._bound_values)
        self.spark.catalog.uncacheTable(_VIEW)

    def _text(self, attempt: Attempt) -> str:
        """The SQL of the rows to apply, built up from filter, order, reduction and (replay) what is missing."""
        rows = self._reduction.landed
        if self.tombstones:
            rows = render(
                "spark",
                "without_deleted_later",
                rows=rows,
                tombstones=self.tombstones,
                keys=self.wanted.keys,
                null_safe=self.null_safe,
            )
        text = self._reduction.of(rows)
        if self.missing:
            text = render(
                "spark",
                "missing_rows",
                rows=text,
                target=attempt.path,
                mode=self.wanted.mode,
                recreated=list(self.recreated.values()),
            )
        return text

    def _sql(self, text: str) -> DataFrame:
        recreated = {f"recreated_{number}": topic for number, topic in enumerate(self.recreated)}
        return self.spark.sql(text, args={**self._reduction.parameters, **recreated})

    @cached_property
    def _reduction(self) -> Reduction:
        if not self.keeps:
            return self.wanted
        return self.wanted.with_unchanged(self.spark)

    @cached_property
    def _bounds(self) -> Row:
        found = self.spark.sql(render("spark", "key_bounds", keys=self.wanted.keys, changes=[_VIEW])).first()
        assert found is not None, "an aggregate has one row"
        return found

    @property
    def _bounded(self) -> dict[int, str]:
        """Number and type of the key columns whose smallest and largest value can prune: ordered, and never null."""
        types = {c.name: c.type for c in self.wanted.columns}
        return {
            n: type_name(types[key])
            for n, key in enumerate(self.wanted.keys)
            if _has_order(types[key]) and self._bounds[f"present_{n}"] == self._bounds["changes"] > 0
        }

    @property
    def _bound_values(self) -> dict[str, object]:
        return {f"{end}_{n}": self._bounds[f"{end}_{n}"] for n in self._bounded for end in ("min", "max")}

    def _render(self, template: str, attempt: Attempt) -> str:
        return render(
            "spark",
            template,
            target=attempt.path,
            changes=[_VIEW],
            tombstones=self.tombstones,
            keys=self.wanted.keys,
            columns=[c.name for c in self.wanted.columns],
            mode=self.wanted.mode,
            null_safe=self.null_safe,
            bounded=self._bounded,
            order_by=self.wanted.order_by,
            kept=[c.name for c in self._reduction.unchanged],
        )


def _has_order(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
    )
