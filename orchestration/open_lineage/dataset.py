"""The inputs and outputs in OpenLineage's events."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.spec.columns import RowColumn


@dataclass(frozen=True)
class Dataset:
    """Topic or table, as OpenLineage names it (its naming conventions).

    Attributes:
        columns: each with its path in `origin`; empty where they are not known.
        origin: the dataset that the columns are made from.
    """

    namespace: str
    name: str
    columns: tuple[RowColumn, ...] = ()
    origin: Dataset | None = None
