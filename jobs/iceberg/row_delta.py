"""One attempt at one commit that replaces rows: new data files, and position deletes of the rows that they replace.

The positions were found at the base, so the commit is valid only on that snapshot. On another one it is refused, and
the changes are merged again. It needs no branch; an attempt that dies leaves only files that no snapshot has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent
from pyiceberg.table import Table

from jobs.iceberg.append import Append
from jobs.iceberg.folding import FoldTask, Group, foldable
from jobs.iceberg.key_search import KeySearch, can_be_searched, with_bounds
from jobs.iceberg.new_files import NewFile, writes_parquet
from jobs.iceberg.position_deletes import BaseFile, NewDeletes, by_data_file, only_data_file
from jobs.iceberg.readable import readable
from jobs.iceberg.schema import schema_at
from jobs.iceberg.staging import live_files
from jobs.iceberg.table_commit import Contents
from resources.errors import CommitFailed
from resources.iceberg_errors import catalog_errors


def can_be_taken(table: Table) -> bool:
    """Whether rows of this table can be replaced by position deletes; other tables are merged by Spark.

    If the partition spec has changed, old files have partitions that we do not write.
    """
    metadata = table.metadata
    wanted = metadata.properties.get("write.merge.mode", "copy-on-write") == "merge-on-read"
    one_spec = len(metadata.partition_specs) == 1
    return wanted and one_spec and knows_files(metadata.format_version, metadata.properties)


def knows_files(format_version: int, properties: Mapping[str, str]) -> bool:
    """Whether position deletes can be written for the data files of such a table."""
    return format_version == 2 and writes_parquet(properties)


class RowDelta(Append):
    """A commit that adds files and deletes rows of others."""

    @cached_property
    def _deletes(self) -> list[NewDeletes]:
        return []

    @cached_property
    def _folded(self) -> list[str]:
        return []

    @property
    def path(self) -> tuple[str, ...] | None:
        """The base as a table of Spark SQL; None if there are no rows yet."""
        return (*self.table_path, f"snapshot_id_{self.base}") if self.base is not None else None

    def known_at_base(self, names: Iterable[str]) -> frozenset[str]:
        """Which of these columns can be read at the base. Names are compared without case, as Spark resolves them."""
        there = {name.lower() for name in schema_at(self._table, self.base).column_names}
        return frozenset(name for name in names if name.lower() in there)

    @cached_property
    def _base_data(self) -> list[DataFile]:
        return self._live(ManifestContent.DATA)

    @cached_property
    def _base_deletes(self) -> list[DataFile]:
        return self._live(ManifestContent.DELETES)

    def _live(self, content: ManifestContent) -> list[DataFile]:
        if self.base is None:
            return []
        with catalog_errors(self.identifier):
            return list(live_files(self._table, self.base, content))

    @cached_property
    def base_files(self) -> Mapping[str, BaseFile]:
        """The base's data files by path."""
        own = by_data_file(self._base_deletes)
        files = ((f.file_path, f.record_count) for f in self._base_data)
        return {path: BaseFile(path, rows, own.get(path, ())) for path, rows in files}

    def search_by(self, keys: Sequence[str], others: Iterable[str] = ()) -> KeySearch | None:
        """How the rows of some keys are found in the base's files; None: only Spark SQL can find them.

        Args:
            keys: names of the key's columns.
            others: other columns to read.
        """
        schema = self.files.arrow_schema
        names = [*keys, *(name for name in others if name not in keys)]
        mapped = "schema.name-mapping.default" in self.properties
        if mapped or not set(names) <= set(schema.names):
            return None
        columns = pa.schema([schema.field(name).with_nullable(True) for name in names])
        if not can_be_searched(pa.schema(list(columns)[: len(keys)])):
            return None
        if self._has_shared_deletes or any(file.file_format != FileFormat.PARQUET for file in self._base_data):
            return None
        files = with_bounds(self._base_data, self.base_files, keys, self._table.schema())
        return KeySearch(self.identifier, columns, files, self.files.storage)

    @property
    def _has_shared_deletes(self) -> bool:
        """Whether some delete file of the base may be for several data files."""
        return any(only_data_file(deletes) is None for deletes in self._base_deletes)

    def remove(self, deletes: Iterable[NewDeletes]) -> None:
        """Adds position delete files that were written to the commit."""
        self._deletes.extend(deletes)

    def fold_task(self) -> FoldTask | None:
        """The task that folds small or worn data files of the base, without the rows that this commit deletes; None:
        there are none to fold, or delete files that are for several data files."""
        if self._has_shared_deletes:
            return None
        gone = {file.data_file: file for file in self._deletes}
        left = [f for f in self._base_data if f.file_path not in gone or gone[f.file_path].path]
        deleted = {f.file_path: f.record_count for f in self._base_deletes}
        counts = {path: sum(deleted[name] for name in file.deletes) for path, file in self.base_files.items()}
        counts.update((path, file.rows) for path, file in gone.items())
        groups = foldable(left, counts, self.files.spec.spec_id, self.files.target_bytes)
        if not groups:
            return None
        after = [
            Group(group[0].partition, [self._after(self.base_files[file.file_path], gone) for file in group])
            for group in groups
        ]
        return FoldTask(self.files, readable(self._table.metadata), after)

    def fold(self, task: FoldTask, files: Iterable[NewFile]) -> None:
        """Adds the files that this task wrote to the commit, in place of those that it has folded."""
        self._folded.extend(file.path for group in task.groups for file in group.files)
        self.add(files)

    def _after(self, file: BaseFile, gone: Mapping[str, NewDeletes]) -> BaseFile:
        deletes = gone.get(file.path)
        return replace(file, deletes=(deletes.path,)) if deletes and deletes.path else file

    def _contents(self) -> Contents:
        contents, base = super()._contents(), {file.file_path: file for file in self._base_data}
        replaced = {path for file in self._deletes for path in file.replaced}
        dropped = {*self._folded, *(file.data_file for file in self._deletes if file.path is None)}
        replaced.update(path for name in dropped for path in self.base_files[name].deletes)
        removed = [
            *(file for file in self._base_data if file.file_path in dropped),
            *(file for file in self._base_deletes if file.file_path in replaced),
        ]
        if len(removed) < len(dropped) + len(replaced):
            raise CommitFailed(
                "files that this commit replaces are not in the table's base snapshot", where=self.identifier
            )
        kept = [file for file in self._deletes if file.path and file.data_file not in dropped]
        return replace(contents, deletes=[file.to_file(base[file.data_file]) for file in kept], removed=removed)
