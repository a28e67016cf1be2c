"""Compaction: Iceberg's `rewrite_data_files`, published so that it never invalidates a running merge."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotRefUpdate
from pyspark.sql import SparkSession

from jobs.failpoints import failpoint
from jobs.iceberg.branches import maintenance_branch
from jobs.iceberg.position_deletes import only_data_file
from jobs.iceberg.staging import live_files
from jobs.iceberg.table_commit import point
from jobs.maintenance.maintained_table import MaintainedTable, before_and_after, sizes
from jobs.spec.maintenance import Compaction
from resources.errors import CommitFailed, ConfigurationError
from resources.iceberg_errors import catalog_errors


def compact(spark: SparkSession, maintained: MaintainedTable, options: Compaction) -> Mapping[str, int]:
    """Rewrites the files that Iceberg's strategy selects.

    Raises:
        GaveWay, CommitFailed: the table is being changed; nothing was published.
    """
    before = maintained.load()
    maintained.give_way()
    if maintained.merged:
        with _branch(maintained, before) as branch:
            failpoint("maintenance.begun")
            counts = _rewrite(spark, maintained, options, branch)
            failpoint("maintenance.written")
            maintained.give_way()
            _publish(maintained, before, branch)
        failpoint("maintenance.published")
        drop_dangling_deletes(maintained)
    else:
        counts = _rewrite(spark, maintained, options, maintained.branch)
    after = maintained.load()
    return {
        "files rewritten": counts["rewritten_data_files_count"],
        "delete files removed": counts["removed_delete_files_count"],
        "bytes rewritten": counts["rewritten_bytes_count"],
        **before_and_after(sizes(before, maintained.branch), sizes(after, maintained.branch)),
    }


def _rewrite(spark: SparkSession, maintained: MaintainedTable, options: Compaction, branch: str) -> Mapping[str, int]:
    strategy, sort_by = order_of_files(maintained, options, maintained.load())
    (counts,) = maintained.procedure(
        spark,
        "rewrite_data_files",
        branch=branch,
        strategy=strategy,
        sort_by=sort_by,
        min_input_files=options.min_input_files,
        max_deletes_per_file=options.max_deletes_per_file,
        target_file_mb=options.target_file_mb,
    )
    return counts.asDict()


def order_of_files(maintained: MaintainedTable, options: Compaction, table: Table) -> tuple[str, tuple[str, ...]]:
    """Iceberg's strategy, and the columns to sort by; none if the table's own order is used.

    Raises:
        ConfigurationError: another order than the table's, which Iceberg refuses, or no column to sort by.
    """
    own = tuple(table.schema().find_column_name(f.source_id) or "" for f in table.sort_order().fields)
    wanted = tuple(options.sort_by)
    if options.strategy == "bin_pack":
        return "binpack", ()
    if own and wanted not in ((), own):
        raise ConfigurationError(
            f"`maintenance.compaction.sort_by` names another order than the table's own ({', '.join(own)})",
            where=maintained.identifier,
            remedy="leave it out, or change the table's sort order",
        )
    columns = wanted or maintained.sort_by
    if own or columns:
        return "sort", () if own else columns
    if options.strategy == "sort":
        raise ConfigurationError(
            "there is no order to sort by", where=maintained.identifier, remedy="name `maintenance.compaction.sort_by`"
        )
    return "binpack", ()


def drop_dangling_deletes(maintained: MaintainedTable) -> None:
    """Removes delete files of data files that no longer exist, which Iceberg's own compaction leaves.

    Raises:
        CommitFailed: the table is being changed; the next maintenance removes them.
    """
    table = maintained.load()
    ref = table.metadata.refs[maintained.branch]
    with catalog_errors(maintained.identifier):
        data = {file.file_path for file in live_files(table, ref.snapshot_id, ManifestContent.DATA)}
        deletes = list(live_files(table, ref.snapshot_id, ManifestContent.DELETES))
        dangling = [f for f in deletes if (of := only_data_file(f)) and of not in data]
    if dangling:
        maintained.replace_head(table, dangling)


@contextmanager
def _branch(maintained: MaintainedTable, table: Table) -> Iterator[str]:
    """A branch for this compaction at the table's head, removed at the end."""
    name = maintenance_branch(maintained.pipeline, maintained.branch, uuid.uuid4().hex, datetime.now(UTC))
    base = table.metadata.refs[maintained.branch].snapshot_id
    maintained.catalog.commit(
        table, [AssertRefSnapshotId(ref=maintained.branch, snapshot_id=base)], [point(name, base)]
    )
    try:
        yield name
    finally:
        left = maintained.catalog.load(maintained.identifier)
        if left and name in left.metadata.refs:
            maintained.catalog.commit(left, [], [RemoveSnapshotRefUpdate(ref_name=name)])


def _publish(maintained: MaintainedTable, before: Table, branch: str) -> None:
    """Moves the table to the compacted files, if its head is still the one where the compaction began.

    Raises:
        CommitFailed: it is not, or the branch is gone.
    """
    table = maintained.load()
    base, written = before.metadata.refs[maintained.branch], table.metadata.refs.get(branch)
    if written is None:
        raise CommitFailed("another run has removed this compaction's branch", where=maintained.identifier)
    head = written.snapshot_id
    if head == base.snapshot_id:
        return
    maintained.catalog.commit(
        table,
        [
            AssertRefSnapshotId(ref=maintained.branch, snapshot_id=base.snapshot_id),
            AssertRefSnapshotId(ref=branch, snapshot_id=head),
        ],
        [point(maintained.branch, head, like=base), RemoveSnapshotRefUpdate(ref_name=branch)],
    )
