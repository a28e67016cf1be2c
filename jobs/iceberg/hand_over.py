"""The commit that hands a table over to another pipeline: a snapshot without rows that ends the search for states.

It moves the branch, so a concurrent commit of the old pipeline is refused.
"""

from __future__ import annotations

from pyiceberg.table.update import RemovePropertiesUpdate, RemoveSnapshotRefUpdate, TableUpdate

from jobs.iceberg.append import Append
from jobs.iceberg.table_commit import Found


class HandOver(Append):
    """Removes the pipeline's state from the table."""

    def to(self, pipeline: str) -> int:
        """Hands the table over to this pipeline; returns the snapshot's id.

        Raises:
            CommitFailed: a run has committed meanwhile.
        """
        summary, mirrored, _ = self._pipeline_branch.given_away(self._table, pipeline)
        return self.publish_append(summary, mirrored, rebase=False)

    def _found(self) -> Found:
        found = super()._found()
        _, _, gone = self._pipeline_branch.given_away(self._table, "")
        tag = RemoveSnapshotRefUpdate(ref_name=self._pipeline_branch.tag)
        removed: list[TableUpdate] = [RemovePropertiesUpdate(removals=gone)] if gone else []
        return Found(found.files, updates=[tag, *removed])
