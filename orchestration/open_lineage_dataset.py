"""What OpenLineage's events are about."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.spec.columns import RowColumn


@dataclass(frozen=True)
class Dataset:
    """Topic or table, as OpenLineage names it (its naming conventions).

    Attributes:
        columns: with the places in `origin` that they are made from; none where they are not known.
        origin: what the columns are made from.
    """

    namespace: str
    name: str
    columns: tuple[RowColumn, ...] = ()
    origin: Dataset | None = None
