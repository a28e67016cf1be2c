"""Compaction: Iceberg's `rewrite_data_files`, published so that it never makes somebody else's work void."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotRefUpdate
from pyspark.sql import SparkSession

from jobs.iceberg.attempt import point
from jobs.iceberg.branches import maintenance_branch
from jobs.maintenance.maintained_table import MaintainedTable, before_and_after, sizes
from jobs.spec.maintenance import Compaction
from resources.errors import ConfigurationError


def compact(spark: SparkSession, kept: MaintainedTable, options: Compaction) -> Mapping[str, int]:
    """Rewrites what is worth it.

    Raises:
        GaveWay, CommitFailed: the table is being changed; nothing was published.
    """
    before = kept.load()
    kept.give_way()
    if kept.merged:
        with _branch(kept, before) as branch:
            counts = _rewrite(spark, kept, options, branch)
            kept.give_way()
            _publish(kept, before, branch)
    else:
        counts = _rewrite(spark, kept, options, kept.branch)
    after = kept.load()
    return {
        "files rewritten": counts["rewritten_data_files_count"],
        "delete files removed": counts["removed_delete_files_count"],
        "bytes rewritten": counts["rewritten_bytes_count"],
        **before_and_after(sizes(before, kept.branch), sizes(after, kept.branch)),
    }


def _rewrite(spark: SparkSession, kept: MaintainedTable, options: Compaction, branch: str) -> Mapping[str, int]:
    strategy, sort_by = order_of_files(kept, options, kept.load())
    return kept.call(
        spark,
        "rewrite_data_files",
        branch=branch,
        strategy=strategy,
        sort_by=sort_by,
        min_input_files=options.min_input_files,
        max_deletes_per_file=options.max_deletes_per_file,
        target_file_mb=options.target_file_mb,
    )


def order_of_files(kept: MaintainedTable, options: Compaction, table: Table) -> tuple[str, tuple[str, ...]]:
    """Iceberg's strategy, and the columns to sort by; none where that is the table's own order.

    Raises:
        ConfigurationError: another order than the table's, which Iceberg refuses, or none to sort by.
    """
    own = tuple(table.schema().find_column_name(f.source_id) or "" for f in table.sort_order().fields)
    wanted = tuple(options.sort_by)
    if options.strategy == "bin_pack":
        return "binpack", ()
    if own and wanted not in ((), own):
        raise ConfigurationError(
            f"`maintenance.compaction.sort_by` names another order than the table's own ({', '.join(own)})",
            where=kept.identifier,
            remedy="leave it out, or change the table's sort order",
        )
    columns = wanted or kept.sort_by
    if own:
        return "sort", ()
    if columns:
        return "sort", columns
    if options.strategy == "sort":
        raise ConfigurationError(
            "there is no order to sort by", where=kept.identifier, remedy="name `maintenance.compaction.sort_by`"
        )
    return "binpack", ()


@contextmanager
def _branch(kept: MaintainedTable, table: Table) -> Iterator[str]:
    """A branch of this compaction at the table's head, which is gone afterwards."""
    name = maintenance_branch(kept.pipeline, kept.branch, uuid.uuid4().hex, datetime.now(UTC))
    base = table.metadata.refs[kept.branch].snapshot_id
    kept.catalog.commit(table, [AssertRefSnapshotId(ref=kept.branch, snapshot_id=base)], [point(name, base)])
    try:
        yield name
    finally:
        left = kept.catalog.load(kept.identifier)
        if left and name in left.metadata.refs:
            uuid_then = AssertTableUUID(uuid=left.metadata.table_uuid)
            kept.catalog.commit(left, [uuid_then], [RemoveSnapshotRefUpdate(ref_name=name)])


def _publish(kept: MaintainedTable, before: Table, branch: str) -> None:
    """Moves the table to the compacted files, only if it is still where the compaction began."""
    table = kept.load()
    base = before.metadata.refs[kept.branch]
    head = table.metadata.refs[branch].snapshot_id
    if head == base.snapshot_id:
        return
    kept.catalog.commit(
        table,
        [
            AssertTableUUID(uuid=before.metadata.table_uuid),
            AssertRefSnapshotId(ref=kept.branch, snapshot_id=base.snapshot_id),
            AssertRefSnapshotId(ref=branch, snapshot_id=head),
        ],
        [point(kept.branch, head, like=base), RemoveSnapshotRefUpdate(ref_name=branch)],
    )
