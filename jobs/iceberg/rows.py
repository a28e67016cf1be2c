"""Rows of Spark in the shape that an append to an Iceberg table needs."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from sql import quote


def with_all_columns(rows: DataFrame, declared: Sequence[str], table: pa.Schema) -> DataFrame:
    """The declared columns, and nulls for the table's other columns: an append has to name all of them.

    The column names are an argument, because asking the DataFrame for them is a request to the Spark server.
    """
    # Spark compares names without case.
    named = {name.lower() for name in declared}
    others = [f for f in table if f.name.lower() not in named]
    return rows.select(
        *(F.col(quote("spark", name)) for name in declared),
        *(F.lit(None).cast(from_arrow_type(f.type)).alias(f.name) for f in others),
    )
