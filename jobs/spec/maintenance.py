"""The `maintenance` part of a pipeline file: what keeps its tables small and fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from jobs.spec.automation import Cron
from jobs.spec.base import Spec
from jobs.spec.tables import Table, tables_called

# The most landed batches that are kept with `interval`: each commit reads all snapshots, which then takes under 0.1 s.
_MOST_BATCHES = 2000
# The most days and hours that anything is kept: a century. The calendar has no day that is some 2,026 years ago.
_MOST_DAYS = 36_500
_MOST_HOURS = 24 * _MOST_DAYS


class UpkeepTask(Spec):
    """A part of the upkeep."""

    enabled: bool = Field(True, description="false: this task is left out")


class Compaction(UpkeepTask):
    """Small data files become large ones; merge-on-read deletes are applied (Iceberg)."""

    strategy: Literal["auto", "bin_pack", "sort"] = Field(
        "auto", description="auto: sort by the table's sort order if it has one, else bin_pack"
    )
    sort_by: list[str] = Field(default_factory=list, description="columns for `sort`; left out: the table's sort order")
    min_input_files: int = Field(
        5, ge=2, description="rewrite the files of a partition if there are at least this many"
    )
    target_file_mb: int | None = Field(None, gt=0, description="size of a new file; left out: the table's own setting")
    max_deletes_per_file: int = Field(1, ge=1, description="rewrite a data file that has this many delete files")


class Manifests(UpkeepTask):
    """Many small manifests become few large ones (Iceberg)."""

    min_count: int = Field(50, ge=2, description="only a table with at least this many manifests")


class Snapshots(UpkeepTask):
    """Old snapshots are expired, with the files that only they have (Iceberg). Committed offsets stay readable."""

    keep_days: float = Field(
        5, gt=0, le=_MOST_DAYS, description="keep snapshots that are younger; with `interval`: 2,000 intervals"
    )
    keep_last: int = Field(10, ge=1, description="keep at least this many, however old they are")


class Orphans(UpkeepTask):
    """Files and branches that dead runs left behind are removed (Iceberg)."""

    older_than_hours: int = Field(
        72,
        ge=24,
        le=_MOST_HOURS,
        description="younger files stay, because a run may still write them; must be longer than every time limit, and "
        "than twice that of `batch`",
    )


class Landed(UpkeepTask):
    """Landed batches that every table has merged are deleted after some time; they cannot be replayed any more."""

    keep_days: float = Field(
        14,
        gt=0,
        le=_MOST_DAYS,
        description="counted from landing; with `interval`: 2,000 intervals. Dead letters stay. The files are "
        "deleted when the last snapshot with them has expired: about twice this time after landing",
    )
    dead_letters_keep_days: float | None = Field(
        None,
        gt=0,
        le=_MOST_DAYS,
        description="dead letters are deleted after this time; none: never. If the batch of a dead letter was "
        "deleted, `dead-letters retry` leaves the dead letter out: replay its offsets from Kafka",
    )


class CleanUp(UpkeepTask):
    """What merges leave in other systems is removed: staged rows, and with `deletes` rows that stand for deletes."""

    deletes: bool = Field(
        False,
        description="ClickHouse: also drop the rows that stand for deletes (mode upsert_delete without a named "
        "order). The partitions with such rows are rewritten, and the table gets no merge meanwhile",
    )


class Maintenance(Spec):
    """Upkeep of all tables of the pipeline, on a schedule of its own."""

    enabled: bool = Field(True, description="false: the schedule is off. You can still start maintenance by hand")
    cron: Cron = Field("20 3 * * *", description="when it runs (UTC); with `interval`: `50 * * * *`")
    skip_tables: list[str] = Field(
        default_factory=list,
        description="tables that another process maintains; `iceberg shop.orders` if several systems have the name",
    )
    time_limit_seconds: int = Field(
        3600, gt=0, description="for each task of one table; the table's merges wait meanwhile"
    )
    compaction: Compaction = Compaction()
    manifests: Manifests = Manifests()
    snapshots: Snapshots = Snapshots()
    orphans: Orphans = Orphans()
    landed: Landed = Landed()
    clean_up: CleanUp = CleanUp()

    def skipped(self, tables: Sequence[Table]) -> list[Table]:
        """Those of the pipeline's tables that somebody else looks after."""
        return [table for name in self.skip_tables for table in tables_called(tables, name)]

    def for_interval(self, seconds: float) -> Maintenance:
        """With the defaults of a pipeline with `interval`, which makes thousands of batches a day."""
        keep = {"keep_days": _MOST_BATCHES * seconds / 86_400}
        parts = {"landed": self.landed, "snapshots": self.snapshots}
        kept = {n: one.model_copy(update=keep) for n, one in parts.items() if "keep_days" not in one.model_fields_set}
        return self.model_copy(update=kept if "cron" in self.model_fields_set else {"cron": "50 * * * *", **kept})
