"""The commit that gives a table to another pipeline: a snapshot without rows, behind which no state is found.

It moves the branch, so that no commit of the old pipeline that is on its way can follow.
"""

from __future__ import annotations

from pyiceberg.table.update import RemovePropertiesUpdate, RemoveSnapshotRefUpdate, TableUpdate

from jobs.iceberg.append import Append
from jobs.iceberg.history import given_away, tag_name
from jobs.iceberg.table_commit import Found


class HandOver(Append):
    """Removes what the table says of its pipeline's state."""

    def to(self, pipeline: str) -> int:
        """Gives the table to this pipeline; returns the snapshot's id.

        Raises:
            CommitFailed: a run has committed meanwhile.
        """
        summary, mirrored, _ = given_away(self._table, self._pipeline, pipeline, self.target)
        return self.publish_append(summary, mirrored, rebase=False)

    def _found(self) -> Found:
        found = super()._found()
        _, _, gone = given_away(self._table, self._pipeline, "", self.target)
        tag = RemoveSnapshotRefUpdate(ref_name=tag_name(self._pipeline, self.target))
        removed: list[TableUpdate] = [RemovePropertiesUpdate(removals=gone)] if gone else []
        return Found(found.files, updates=[tag, *removed])
