"""One attempt at one commit that appends data files: nothing is visible before it.

It needs no branch. An attempt that dies leaves only files that no snapshot has.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from pyiceberg.manifest import DataFile

from jobs.iceberg.history import summary_of
from jobs.iceberg.new_files import NewFile, NewFiles, data_file
from jobs.iceberg.table_commit import Contents, TableCommit
from resources.errors import CommitFailed

# Bytes of a file beside its rows, at most: a small table's files say little of its rows.
_OF_A_FILE = 32 << 10


class Append(TableCommit):
    """Files that are appended together, in one commit."""

    @cached_property
    def _added(self) -> list[DataFile]:
        return []

    @cached_property
    def files(self) -> NewFiles:
        """Where and how the files are written; travels to Spark's workers."""
        return NewFiles.of(self._table)

    @property
    def row_size(self) -> float:
        """Bytes that a row takes in the table's files, on average; 0: there is none, or the summary has no totals."""
        totals = summary_of(self._table.current_snapshot())
        size, files, rows = (int(totals.get(f"total-{of}", 0)) for of in ("files-size", "data-files", "records"))
        return max(0, size - files * _OF_A_FILE) / max(1, rows)

    @property
    def rows(self) -> int:
        """The number of rows of all files, by their metadata."""
        return sum(file.record_count for file in self._added)

    def add(self, files: Iterable[NewFile]) -> None:
        """Adds files that were written to the commit."""
        self._added.extend(data_file(file, self.files) for file in files)

    def start_over(self) -> None:
        """Forgets the files that were added."""
        self._added.clear()

    def _begin(self) -> int | None:
        if self.target not in self._table.metadata.refs and self.target != "main":
            self._make_target()
        if not self._pending:
            self._check_lineage()
        found = self._table.metadata.refs.get(self.target)
        return found.snapshot_id if found else None

    def _contents(self) -> Contents:
        self._reload()
        # `files` has the schema with which the files were written.
        if self._added and self._table.metadata.current_schema_id != self.files.schema.schema_id:
            raise CommitFailed("the table's columns changed while the batch was written", where=self.identifier)
        return Contents(self._added)
