"""What stood under the old keys of moved rows, column by column: searched by Spark, in which all values stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from jobs.changes.unchanged_columns import unchanged_parameters
from jobs.decode.envelope import MOVED
from jobs.iceberg.spark_writes import with_nested_fields
from jobs.spark.own_views import cached, own_views
from sql import render

EARLIER = "earlier"
PLACE = ("batch", "i")


@dataclass
class EarlierValues:
    """A search that goes on with the rows whose values are not found yet.

    Attributes:
        spark: the session of the views.
        views: drops them.
        landed: names the intermediate table.
        key: the names of its columns.
        types: the columns that are searched for.
        unknown: the view of what is not found yet, as `sql/spark/deletes_of_moved_rows.sql.j2` gives it.
        found: views ``batch, i, earlier``: no place is in two of them.
    """

    spark: SparkSession
    views: ExitStack
    landed: Mapping[str, object]
    key: Sequence[str]
    types: pa.Schema
    unknown: str
    found: list[str] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        names: list[str] = self.types.names
        return names

    def ends(self, held_at: int | None = None) -> list[int]:
        """The batches that delete the old keys of rows whose values are not found yet, ascending.

        Args:
            held_at: only of keys of which a table has lacked something since this batch: a record was read again.
        """
        unknown = self.spark.table(self.unknown)
        if held_at is not None:
            text = render("spark", "moved_rows_read_again", moved=[self.unknown], held_at=held_at, **self.landed)
            unknown = self.spark.sql(text)
        return sorted(row[0] for row in unknown.select("end.batchNumber").distinct().collect())

    def keys(self, ends: Sequence[int]) -> DataFrame:
        """The old keys that these batches delete."""
        wanted = F.col("end.batchNumber").isin(list(ends))
        return self.spark.table(self.unknown).where(wanted).select("old_key.*").distinct()

    def find(self, rows: DataFrame | None = None, held_at: int = 0) -> None:
        """Searches the landed changes, and the rows of the old keys that a table had after the batch `held_at`."""
        names = ("old_rows", "earlier_values", "unknown_rows")
        held, earlier, unknown = self.views.enter_context(own_views(self.spark, *names))
        if rows is not None:
            given = to_arrow_schema(rows.schema)
            types = dict(zip(given.names, given.types, strict=True))
            cached(with_nested_fields(rows, types, self.types), held)
        text = render(
            "spark",
            "values_of_moved_rows",
            moved=[self.unknown],
            **self.landed,
            columns=self.columns,
            held=None if rows is None else [held],
            held_at=held_at,
            keys=self.key,
        )
        parameters = {"moved_kind": MOVED, **unchanged_parameters(self.columns)}
        known = cached(self.spark.sql(text, args=parameters), earlier)
        if known.count():
            self.spark.table(self.unknown).join(F.broadcast(known), list(PLACE), "left_anti").createTempView(unknown)
            self.unknown = unknown
            self.found.append(earlier)
