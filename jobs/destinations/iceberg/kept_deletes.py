"""The table that remembers the order of deletes, as one merge finds it when it begins."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table import Table

from jobs.batch import PREFIX
from jobs.iceberg.attempt import Attempt
from resources.errors import CommitFailed
from resources.iceberg import IcebergCatalog

# A property: for which key and order, and after which commit, the table was last emptied.
RENEWED = PREFIX + "renewed"


class _Attempt(Attempt):
    """The table has no committed state of its own: that no other commit came between is enough."""

    def _check_lineage(self) -> None:
        pass


@dataclass(frozen=True)
class KeptDeletes:
    """Noted before the destination table's own commit checks the state: whoever renews the kept deletes after that
    check is noticed by `begin`, so that a run that slept is refused.

    Attributes:
        noted: the table as it was then.
    """

    catalog: IcebergCatalog
    pipeline: str
    identifier: str
    noted: Table

    @property
    def path(self) -> tuple[str, ...]:
        """The table in Spark SQL."""
        return (self.catalog.name, *self.identifier.split("."))

    @property
    def renewed(self) -> str:
        return self.noted.properties.get(RENEWED, "")

    def begin(self) -> Attempt:
        """One attempt at one commit, whose base has not been renewed since.

        Raises:
            CommitFailed: another run has renewed them.
        """
        found = self.catalog.require(self.identifier)
        is_same = found.metadata.table_uuid == self.noted.metadata.table_uuid
        if not is_same or found.properties.get(RENEWED, "") != self.renewed:
            raise CommitFailed("another run has begun with another order of changes", where=self.identifier)
        return _Attempt(self.catalog, self.identifier, self.pipeline, None, table=found)
