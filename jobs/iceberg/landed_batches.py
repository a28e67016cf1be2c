"""The landed batches of the intermediate table, read from its snapshots."""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from jobs.batch import LENGTHS, PREFIX, LandedBatch, LandedBatches
from jobs.iceberg.history import ancestors, summary_of
from jobs.iceberg.state_file import Carried
from jobs.iceberg.table_property import KEPT_FROM
from jobs.landed_properties import landed_from_properties

# Parsed summaries by table and snapshot. Beyond `_MOST_KNOWN` those of tables go that were not looked at for longest:
# then tables that are looked at in turn are parsed each time. So it is more than pipelines have: 500 tables with 200
# batches each, of which one takes up to 5 KB.
_KNOWN: OrderedDict[UUID, dict[int, _SnapshotReport]] = OrderedDict()
_MOST_KNOWN = 100_000
_LOCK = Lock()


def landed_batches(table: Table, pipeline: str) -> LandedBatches:
    """The landed batches that the table's snapshots still have, from the first that retention keeps. Snapshots of
    maintenance have none."""
    first = KEPT_FROM.read(table.metadata.properties, pipeline)
    reports = reversed(_reports(table))
    known = [report.landed for report in reports if report.landed and report.pipeline == pipeline]
    found = [landed for landed in known if landed.number >= first]
    return LandedBatches(found, not found or found[0].batch.previous_commit_id is None)


@dataclass(frozen=True)
class _SnapshotReport:
    """A snapshot's summary, and its landed batch if it has one."""

    summary: Carried
    pipeline: str | None
    landed: LandedBatch | None


def _reports(table: Table) -> list[_SnapshotReport]:
    """The snapshots' parsed summaries, newest first. They are cached: snapshots never change, and each run reads all of
    them several times."""
    before, now = _KNOWN.get(table.metadata.table_uuid, {}), dict[int, _SnapshotReport]()
    for snapshot in ancestors(table.metadata, "main"):
        known = now[snapshot.snapshot_id] = before.get(snapshot.snapshot_id) or _report(snapshot, table.io)
        known.summary.io = table.io  # the previous one's credentials may have expired
    with _LOCK:
        _KNOWN[table.metadata.table_uuid] = now
        _KNOWN.move_to_end(table.metadata.table_uuid)
        # The table itself stays, whatever its size: the next look would parse all of it again.
        while len(_KNOWN) > 1 and sum(map(len, _KNOWN.values())) > _MOST_KNOWN:
            _KNOWN.popitem(last=False)
    return list(now.values())


def _report(snapshot: Snapshot, io: FileIO) -> _SnapshotReport:
    # Without Iceberg's own totals; the names are the same strings in all of them.
    own = {sys.intern(name): value for name, value in summary_of(snapshot).items() if name.startswith(PREFIX)}
    summary = Carried(own, io)
    landed = landed_from_properties(summary, snapshot.snapshot_id) if LENGTHS in summary else None
    return _SnapshotReport(summary, summary.get(PREFIX + "pipeline"), landed)
