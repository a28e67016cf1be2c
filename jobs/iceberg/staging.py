"""A snapshot that adds and removes files: its manifests and manifest list, written and not yet committed.

pyiceberg's own commit of a snapshot retries on a moved head, which drops the requirement that makes it a
compare-and-set; so only its staging half is used. It cannot add delete files or remove single files: this module does,
and marks removed files in the manifests that name them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import TableUpdate
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.types import NestedField, StringType

from jobs.iceberg.manifest_entries import live_entries
from jobs.iceberg.partitioning import Partitioning
from jobs.iceberg.position_deletes import DeleteManifestWriter
from resources.errors import ConfigurationError
from resources.iceberg import require_version

# Delete manifests with fewer entries are written again as one with each batch, so that their number does not grow.
_MANIFEST_ENTRIES = 500
# Manifests of about one size (within a factor of _CROWD) are merged when there are this many ...
_CROWD = 16
# ... except those of _CROWD ** _LEVELS or more files.
_LEVELS = 3
# The name of a column that stands in for a dropped one, before its number.
_DROPPED = "__dropped_"


def stage(
    table: Table,
    target: str,
    files: Iterable[DataFile],
    deletes: Sequence[DataFile],
    removed: Sequence[DataFile],
    summary: dict[str, str],
) -> tuple[list[TableUpdate], int]:
    """Writes the manifests and the manifest list of a snapshot on the target's head.

    Args:
        deletes: delete files to add.
        removed: data and delete files of the head to remove.

    Returns:
        The updates of the table's metadata, and the snapshot's id.
    """
    require_version(table.format_version, ".".join(table.name()))
    # Iceberg's own writers check snapshots with this operation for new deletes that conflict with their commit.
    operation = Operation.OVERWRITE if deletes or removed else Operation.APPEND
    producer = _Producer(operation, _Unchanged(table), table.io, snapshot_properties=summary, branch=target)
    producer.deletes, producer.removed = deletes, removed
    for file in files:
        producer.append_data_file(file)
    updates, _ = producer._commit()
    return list(updates), producer.snapshot_id


def crowd(manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
    """Data manifests to merge into one, so that their number does not grow with each batch.

    They are of about one size, so a file's entry is written again only a few times in all, and the number of manifests
    grows with the logarithm of the number of files. Large ones are not merged.
    """
    alike = defaultdict[tuple[int, int], list[ManifestFile]](list)
    for manifest in manifests:
        files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
        if manifest.content == ManifestContent.DATA and files < _CROWD**_LEVELS:
            level = sum(files >= _CROWD**n for n in range(1, _LEVELS))
            alike[manifest.partition_spec_id, level].append(manifest)
    return next((alike[one] for one in sorted(alike) if len(alike[one]) >= _CROWD), [])


class _Producer(_FastAppendFiles):
    """An append that may add delete files, and remove files of either content."""

    deletes: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()

    def _existing_manifests(self) -> list[ManifestFile]:
        known = super()._existing_manifests()
        kept, again = list[ManifestFile](), defaultdict[tuple[ManifestContent, int], list[ManifestEntry]](list)
        mergeable = [m for m in known if m.partition_spec_id in self._known_specs]
        crowded = frozenset(m.manifest_path for m in crowd(mergeable)) if self._merges_manifests else frozenset()
        for manifest in known:
            if entries := self._to_rewrite(manifest, manifest.manifest_path in crowded):
                again[manifest.content, manifest.partition_spec_id] += entries
            else:
                kept.append(manifest)
        for file in self.deletes:
            # No sequence number: the file inherits the snapshot's.
            added = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, sequence_number=None, data_file=file)
            again[ManifestContent.DELETES, file.spec_id].append(added)
        return kept + [self._manifest(content, spec, entries) for (content, spec), entries in again.items()]

    @cached_property
    def _removed_paths(self) -> Mapping[ManifestContent, frozenset[str]]:
        data = frozenset(f.file_path for f in self.removed if f.content == DataFileContent.DATA)
        every = frozenset(f.file_path for f in self.removed)
        return {ManifestContent.DATA: data, ManifestContent.DELETES: every - data}

    @property
    def _merges_manifests(self) -> bool:
        wanted = self._transaction.table_metadata.properties.get("commit.manifest-merge.enabled", "true")
        return wanted.lower() == "true"

    def _to_rewrite(self, manifest: ManifestFile, crowded: bool) -> Sequence[ManifestEntry]:
        """The manifest's entries, if it has to be rewritten: it names a removed file, is merged with others of its
        size (`crowded`), or is a small one of deletes."""
        removed = self._removed_paths[manifest.content]
        of_deletes = manifest.content == ManifestContent.DELETES and bool(self.deletes or self.removed)
        if not (removed or of_deletes or crowded):
            return []
        entries = live_entries(manifest, self._io)
        is_known = manifest.partition_spec_id in self._known_specs
        if any(e.data_file.file_path in removed for e in entries):
            if not is_known:
                raise _unknown(self._transaction._table, manifest.partition_spec_id)
            return entries
        small = of_deletes and len(entries) <= _MANIFEST_ENTRIES and is_known
        return entries if small or crowded else []

    def _manifest(self, content: ManifestContent, spec_id: int, entries: Sequence[ManifestEntry]) -> ManifestFile:
        with self._writer(content, spec_id) as writer:
            for entry in entries:
                if entry.sequence_number is None:
                    writer.add(entry)
                elif entry.data_file.file_path in self._removed_paths[content]:
                    writer.delete(entry)
                    self._deleted_data_files.add(entry.data_file)
                else:
                    writer.existing(entry)
        return writer.to_manifest_file()

    def _writer(self, content: ManifestContent, spec_id: int) -> ManifestWriter:
        spec = self.spec(spec_id)
        if content == ManifestContent.DATA:
            return self.new_manifest_writer(spec)
        output = self.new_manifest_output()
        return DeleteManifestWriter(spec, self._schema_of(spec), output, self.snapshot_id, self._compression)

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        version, output = self._transaction.table_metadata.format_version, self.new_manifest_output()
        return write_manifest(version, spec, self._schema_of(spec), output, self.snapshot_id, self._compression)

    def _schema_of(self, spec: PartitionSpec) -> Schema:
        """The newest schema with the columns of the spec: columns of an older spec may be dropped by now.

        If no schema has a column any more, of which a removed partition field is left (format version 1), it has a
        column in its place: all values of the field are null, and pyiceberg would write a type that no reader knows.
        """
        columns = {field.source_id for field in spec.fields}
        found = self._with(columns)
        if found is not None:
            return found
        present = self._transaction.table_metadata.schema()
        missing = columns - index_by_id(present).keys()
        stands_in = (NestedField(number, f"{_DROPPED}{number}", StringType()) for number in sorted(missing))
        return Schema(*present.fields, *stands_in)

    @cached_property
    def _known_specs(self) -> Set[int]:
        """The specs of whose values the types are known: other engines remove schemas that no snapshot has."""
        specs = self._transaction.table_metadata.specs().items()
        columns = {n: {f.source_id for f in s.fields if not isinstance(f.transform, VoidTransform)} for n, s in specs}
        return {number for number, of in columns.items() if not of or self._with(of) is not None}

    def _with(self, columns: Set[int]) -> Schema | None:
        """The newest schema with these columns; None if there is none."""
        present = self._transaction.table_metadata.schema()
        older = sorted(self._transaction.table_metadata.schemas, key=lambda schema: schema.schema_id, reverse=True)
        return next((schema for schema in (present, *older) if columns <= index_by_id(schema).keys()), None)

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        gone, wanted = ({file.file_path for file in files} for files in (self._deleted_data_files, self.removed))
        assert gone == wanted, "they are live at the head"
        # Not before the manifests are written: pyiceberg would write delete files as data files.
        self._added_data_files = [*self._added_data_files, *self.deletes]
        return super()._summary(snapshot_properties)


def _unknown(table: Table, spec: int) -> ConfigurationError:
    return ConfigurationError(
        f"files of the partition spec {spec} cannot be removed: its column was dropped, and no schema of the "
        "table says its type any more",
        where=".".join(table.name()),
        remedy="rewrite all files of the table by another engine (`rewrite_data_files` with `rewrite-all`)",
    )


class _Unchanged(Transaction):
    """The transaction of a snapshot producer that only stages: the table's metadata does not change in it.

    pyiceberg's own copies the whole metadata at each access, 13 times in one append, which costs more with every
    snapshot. Partition paths in the summary come from `Partitioning`.
    """

    @cached_property
    def table_metadata(self) -> TableMetadata:
        found = self._table.metadata
        return found.model_copy(update={"partition_specs": [Partitioning.of(spec) for spec in found.partition_specs]})


def live_files(table: Table, snapshot_id: int, content: ManifestContent) -> Iterable[DataFile]:
    """The data files, or the delete files, of a snapshot."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    manifests = snapshot.manifests(table.io) if snapshot else []
    io: FileIO = table.io
    return (entry.data_file for m in manifests if m.content == content for entry in live_entries(m, io))
