"""A snapshot that adds data and delete files: its manifests and manifest list, written and not yet committed.

pyiceberg's own commit of a snapshot retries on a moved head and so drops the requirement that makes it a
compare-and-set; so only the staging half of it is used. It has no writer for deletes at all: they are put in here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import TableUpdate
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import EMPTY_DICT

from jobs.iceberg.position_deletes import DeleteManifestWriter

# Smaller manifests of deletes are written again with each batch, so that their number does not grow.
_MANIFEST_ENTRIES = 500


def stage(
    table: Table,
    target: str,
    files: Iterable[DataFile],
    deletes: Sequence[DataFile],
    replaced: frozenset[str],
    summary: dict[str, str],
) -> tuple[list[TableUpdate], int]:
    """Writes them on top of the target's head.

    Args:
        deletes: delete files that are added.
        replaced: paths of those that go with it.

    Returns:
        The updates of the table's metadata, and the snapshot's id.
    """
    # Iceberg's own writers look for new deletes in snapshots of this operation, before they commit beside them.
    operation = Operation.OVERWRITE if deletes or replaced else Operation.APPEND
    producer = _Producer(operation, _Unchanged(table), table.io, snapshot_properties=summary, branch=target)
    producer.deletes, producer.replaced = deletes, replaced
    for file in files:
        producer.append_data_file(file)
    updates, _ = producer._commit()
    return list(updates), producer.snapshot_id


class _Producer(_FastAppendFiles):
    """An append that may add and replace delete files."""

    deletes: Sequence[DataFile] = ()
    replaced: frozenset[str] = frozenset()

    def _existing_manifests(self) -> list[ManifestFile]:
        known = super()._existing_manifests()
        if not (self.deletes or self.replaced):
            return known
        kept, by_spec = list[ManifestFile](), defaultdict[int, list[ManifestEntry]](list)
        for manifest in known:
            entries = self._deletes_to_write_again(manifest)
            if entries:
                by_spec[manifest.partition_spec_id] += entries
            else:
                kept.append(manifest)
        for file in self.deletes:
            # No sequence number: it is inherited from the snapshot.
            added = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, sequence_number=None, data_file=file)
            by_spec[file.spec_id].append(added)
        return kept + [self._delete_manifest(spec, entries) for spec, entries in by_spec.items()]

    def _deletes_to_write_again(self, manifest: ManifestFile) -> list[ManifestEntry]:
        """The entries of a small manifest of deletes, or of one that names a replaced file."""
        if manifest.content != ManifestContent.DELETES:
            return []
        entries = manifest.fetch_manifest_entry(self._io)
        small = len(entries) <= _MANIFEST_ENTRIES
        return entries if small or any(e.data_file.file_path in self.replaced for e in entries) else []

    def _delete_manifest(self, spec_id: int, entries: Sequence[ManifestEntry]) -> ManifestFile:
        output, spec = self.new_manifest_output(), self.spec(spec_id)
        with DeleteManifestWriter(spec, self.schema(), output, self.snapshot_id, self._compression) as writer:
            for entry in entries:
                if entry.sequence_number is None:
                    writer.add(entry)
                elif entry.data_file.file_path in self.replaced:
                    writer.delete(entry)
                    self._deleted_data_files.add(entry.data_file)
                else:
                    writer.existing(entry)
        return writer.to_manifest_file()

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        assert {file.file_path for file in self._deleted_data_files} == self.replaced, "they are live at the head"
        # Only now, when the manifests are written: pyiceberg would take them for data files.
        self._added_data_files = [*self._added_data_files, *self.deletes]
        return super()._summary(snapshot_properties)


class _Unchanged(Transaction):
    """Of a snapshot producer that stages on the table as it is.

    pyiceberg's own copies the whole metadata each time that it is asked for it, 13 times in one append: that grows with
    every snapshot.
    """

    @property
    def table_metadata(self) -> TableMetadata:
        return self._table.metadata


def live_files(table: Table, snapshot_id: int, content: ManifestContent) -> Iterable[DataFile]:
    """The data files, or the delete files, of a snapshot."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    manifests = snapshot.manifests(table.io) if snapshot else []
    io: FileIO = table.io
    return (entry.data_file for m in manifests if m.content == content for entry in m.fetch_manifest_entry(io))
