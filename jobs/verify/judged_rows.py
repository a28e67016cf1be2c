"""Rows of a destination table beside what landed changes say of them: what is wrong, counted by Spark's tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.destinations.row_values import RowValues
from jobs.destinations.shares import reshaped


@dataclass(frozen=True)
class Judged:
    """How many rows were compared, and how many of them are wrong in which way.

    Attributes:
        unknown: no landed change explains them.
        deleted: landed changes have deleted them.
        differs: by column, the rows whose value there is another one.
    """

    rows: int
    unknown: int
    deleted: int
    differs: Mapping[str, int]


def judged(rows: DataFrame, values: RowValues) -> Judged:
    """What becomes of rows of ``compared_rows.sql.j2``; only sums of them come back."""
    names = ["unknown", "deleted", *(f"differs_{n}" for n in range(len(values.columns)))]
    if values.compared_in_python:
        rows = reshaped(rows, _PythonComparison(values), pa.schema([(name, pa.bool_()) for name in names]))
    found = rows.agg(F.count("*").alias("rows"), *(F.count_if(F.col(name)).alias(name) for name in names)).first()
    assert found is not None, "an aggregate has one row"
    differs = {column.name: int(found[f"differs_{n}"]) for n, column in enumerate(values.columns)}
    return Judged(int(found["rows"]), int(found["unknown"]), int(found["deleted"]), differs)


@dataclass(frozen=True)
class _PythonComparison:
    """Compares the columns that Spark does not; travels to its tasks."""

    values: RowValues

    def __call__(self, rows: pa.Table) -> pa.Table:
        compared_in_python = {column.name for column in self.values.compared_in_python}
        made = {name: rows[name] for name in ("unknown", "deleted")}
        for n, column in enumerate(self.values.columns):
            if column.name not in compared_in_python:
                made[f"differs_{n}"] = rows[f"differs_{n}"]
                continue
            known = rows[f"known_{n}"].to_numpy()
            compared = rows.filter(pa.array(known))
            pair = (compared[f"{which}_{n}"].combine_chunks() for which in ("expected", "found"))
            differs = np.zeros(len(rows), bool)
            differs[known] = self.values.differ(column, *pair)
            made[f"differs_{n}"] = pa.chunked_array([pa.array(differs)])
        return pa.table(made)
