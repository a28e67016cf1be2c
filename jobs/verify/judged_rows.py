"""Compares rows of a destination table with landed changes; Spark's tasks count the differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.destinations.row_values import RowValues
from jobs.destinations.shares import reshaped


@dataclass(frozen=True)
class Judged:
    """Numbers of compared rows, and of wrong ones by problem.

    Attributes:
        unknown: rows that no landed change explains.
        deleted: rows that landed changes have deleted.
        differs: by column, rows with another value in it.
    """

    rows: int
    unknown: int
    deleted: int
    differs: Mapping[str, int]


def judged(rows: DataFrame, values: RowValues) -> Judged:
    """Counts rows of ``compared_rows.sql.j2`` by result; only sums return to the run."""
    names = ["unknown", "deleted", *(f"differs_{n}" for n in range(len(values.columns)))]
    if values.compared_in_python:
        rows = reshaped(rows, partial(_compared_in_python, values), pa.schema([(name, pa.bool_()) for name in names]))
    counts = (F.count_if(F.col(name)).alias(name) for name in names)
    (found,) = rows.agg(F.count("*").alias("rows"), *counts).collect()
    differs = {column.name: int(found[f"differs_{n}"]) for n, column in enumerate(values.columns)}
    return Judged(int(found["rows"]), int(found["unknown"]), int(found["deleted"]), differs)


def _compared_in_python(values: RowValues, rows: pa.Table) -> pa.Table:
    """Compares the columns that Spark SQL does not compare, in Spark's tasks."""
    compared_in_python = {column.name for column in values.compared_in_python}
    made = {name: rows[name] for name in ("unknown", "deleted")}
    for n, column in enumerate(values.columns):
        if column.name not in compared_in_python:
            made[f"differs_{n}"] = rows[f"differs_{n}"]
            continue
        known = rows[f"known_{n}"].to_numpy()
        compared = rows.filter(pa.array(known))
        pair = (compared[f"{which}_{n}"].combine_chunks() for which in ("expected", "found"))
        differs = np.zeros(len(rows), bool)
        differs[known] = values.differ(column, *pair)
        made[f"differs_{n}"] = pa.chunked_array([pa.array(differs)])
    return pa.table(made)
