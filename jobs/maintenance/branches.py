"""Branches that dead runs left on a table. A living attempt's is younger than every time limit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotRefUpdate

from jobs.iceberg.branches import begun_before
from jobs.maintenance.maintained_table import MaintainedTable
from jobs.spec.maintenance import Orphans


def sweep(maintained: MaintainedTable, options: Orphans) -> Mapping[str, int]:
    """Removes them in one commit; none of them can be published any more."""
    table = maintained.load()
    refs = table.metadata.refs
    dead = begun_before(refs, datetime.now(UTC) - timedelta(hours=options.older_than_hours))
    if dead:
        still = [AssertRefSnapshotId(ref=name, snapshot_id=refs[name].snapshot_id) for name in dead]
        maintained.catalog.commit(
            table,
            [AssertTableUUID(uuid=table.metadata.table_uuid), *still],
            [RemoveSnapshotRefUpdate(ref_name=name) for name in dead],
        )
    return {"branches removed": len(dead)}
