"""The commit that hands a table over to another pipeline: a snapshot without rows that ends the search for states.

It moves the branch, so a concurrent commit of the old pipeline is refused.
"""

from __future__ import annotations

from dataclasses import replace

from pyiceberg.table.update import RemovePropertiesUpdate, RemoveSnapshotRefUpdate, TableUpdate

from jobs.iceberg.append import Append
from jobs.iceberg.table_commit import Contents


class HandOver(Append):
    """Removes the pipeline's state from the table."""

    def to(self, pipeline: str) -> int:
        """Hands the table over to this pipeline; returns the snapshot's id.

        Raises:
            CommitFailed: a run has committed meanwhile.
        """
        branch = self._pipeline_branch
        return self.publish_append(branch.given_by, branch.given_away(self._table, pipeline), rebase=False)

    def _contents(self) -> Contents:
        contents, own = super()._contents(), self._pipeline_branch.own_properties(self._table)
        tag = RemoveSnapshotRefUpdate(ref_name=self._pipeline_branch.tag)
        removed: list[TableUpdate] = [RemovePropertiesUpdate(removals=own)] if own else []
        return replace(contents, updates=[tag, *removed])
