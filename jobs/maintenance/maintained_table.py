"""An Iceberg table as maintenance sees it: where it is, who changes it, and how large it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.table import Table
from pyspark.sql import Row, SparkSession

from jobs.iceberg.branches import alive_for, attempts_since
from jobs.maintenance.report import GaveWay
from resources.iceberg import IcebergCatalog
from resources.spark import spark_errors
from sql import render


@dataclass(frozen=True)
class MaintainedTable:
    """A table that is looked after.

    Attributes:
        branch: the branch that the pipeline publishes to.
        merged: it is changed by MERGE, which another commit makes void; else appends only, which rebase.
        sort_by: columns that its files are sorted by when they are compacted; none: they are only packed.
        attempt_seconds: no attempt to change it lives longer.
    """

    pipeline: str
    catalog: IcebergCatalog
    identifier: str
    branch: str
    merged: bool
    sort_by: tuple[str, ...]
    attempt_seconds: float

    def load(self) -> Table:
        return self.catalog.require(self.identifier)

    def exists(self) -> bool:
        """False before the first batch: then there is nothing to look after."""
        found = self.catalog.load(self.identifier)
        return found is not None and self.branch in found.metadata.refs

    def procedure(self, spark: SparkSession, template: str, **arguments: object) -> list[Row]:
        """Runs one of Iceberg's procedures, and gives its answer.

        Raises:
            CommitFailed: another writer was faster, for good.
        """
        text = render(
            "spark", template, catalog=self.catalog.name, table=tuple(self.identifier.split(".")), **arguments
        )
        with spark_errors(self.identifier):
            return spark.sql(text).collect()

    def give_way(self) -> None:
        """Called before a commit that would make a running MERGE void.

        Raises:
            GaveWay: an attempt to merge is under way.
        """
        if not self.merged:
            return
        since = datetime.now(UTC) - alive_for(self.attempt_seconds)
        if attempts_since(self.load().metadata.refs, since):
            raise GaveWay("a merge is under way", where=self.identifier)


def sizes(table: Table, branch: str) -> dict[str, int]:
    """Files, bytes and delete files of the branch's head."""
    snapshot = table.snapshot_by_name(branch)
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    names = {"files": "total-data-files", "bytes": "total-files-size", "delete files": "total-delete-files"}
    return {name: int(summary.get(key) or 0) for name, key in names.items()}


def before_and_after(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {
        f"{name} {when}": values[name] for name in before for when, values in (("before", before), ("after", after))
    }


def milliseconds_ago(age: timedelta) -> int:
    """That instant, in milliseconds since the epoch, as snapshots are stamped."""
    return int((datetime.now(UTC) - age).timestamp() * 1000)
