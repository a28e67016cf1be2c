"""The table that remembers the order of deletes, as one merge finds it when it begins."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table import Table

from jobs.batch import PREFIX
from jobs.destinations.merge_context import MergeContext
from jobs.iceberg.attempt import Attempt
from resources.errors import CommitFailed
from resources.iceberg import IcebergCatalog
from sql import quote

# A property: for which key and order, and after which commit, the table was last emptied.
RENEWED = PREFIX + "renewed"
# A property of those of another branch than main: the table of main's, which they begin with. Empty: they have them.
BEGINS_WITH = PREFIX + "begins-with"


@dataclass(frozen=True)
class KeptDeletes:
    """Noted before the destination table's own commit checks the state: whoever renews the kept deletes after that
    check is noticed, so that a run that slept is refused.

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
        return self.catalog.spark_path(self.identifier)

    @property
    def renewed(self) -> str:
        return self.noted.properties.get(RENEWED, "")

    def begin(self) -> Attempt:
        """One attempt at one commit.

        Raises:
            CommitFailed: another run has renewed the kept deletes meanwhile.
        """
        return _Attempt(self)

    def begin_with_those_of_main(self, context: MergeContext) -> None:
        """Adds the deletes that were kept when the branch began with main's rows; once only.

        Raises:
            CommitFailed: another run has kept deletes meanwhile.
        """
        of_main = self.noted.properties.get(BEGINS_WITH)
        if not of_main:
            return
        from jobs.iceberg import spark_writes

        attempt = self.begin()
        if self.catalog.load(of_main) is not None:
            columns = [quote("spark", name) for name in attempt.schema.names]
            context.one_task.is_not_enough()
            rows = context.spark.table(quote("spark", self.catalog.spark_path(of_main))).select(*columns)
            spark_writes.append(rows, attempt.path, attempt.summary)
        attempt.publish_head({}, {BEGINS_WITH: ""})


class _Attempt(Attempt):
    def __init__(self, of: KeptDeletes) -> None:
        self._of = of
        super().__init__(of.catalog, of.identifier, of.pipeline, None)

    def _check_lineage(self) -> None:
        """The table has no committed state of its own: that it was not renewed is enough. Who renews it after this
        check removes the base."""
        found, noted = self._table.metadata, self._of.noted.metadata
        if found.table_uuid != noted.table_uuid or found.properties.get(RENEWED, "") != self._of.renewed:
            raise CommitFailed("another run has begun with another order of changes", where=self.identifier)
