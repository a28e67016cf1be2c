"""Long parts of a committed state, in a file that belongs to the state's snapshot.

A table's metadata repeats the summaries of all its snapshots at every commit: offsets of thousands of topic-partitions
would make it grow by some 60 KB with each batch. So they are in a Puffin file that the same commit registers as the
snapshot's statistics file: expiring the snapshot deletes it, and removing orphan files does not. The summary contains
the file's path, and a mark for each property that is in the file.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.puffin import MAGIC_BYTES, Footer, PuffinBlobMetadata, PuffinFile
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import SetStatisticsUpdate

from jobs.batch import LONG, PREFIX
from resources.iceberg_errors import catalog_errors

STATE_FILE = PREFIX + "state-file"
_THERE = "in the state file"
_BLOB = "batchmerge-state-v1"
# Above this total of characters (some 150 topic-partitions) long properties go into the file.
_MOST = 4000
# Number of cached files: the parts of a state are read one by one, and many states by threads.
_STAY_READ = 32


@dataclass(frozen=True)
class StateFile:
    """A written file that no snapshot has yet.

    Attributes:
        size, footer: in bytes.
    """

    location: str
    size: int
    footer: int

    def registered(self, snapshot_id: int) -> SetStatisticsUpdate:
        """The metadata update that registers the file as the snapshot's."""
        # Without the blob: pyiceberg cannot load a table whose metadata has a blob type that it does not know.
        statistics = StatisticsFile.model_validate(
            {
                "snapshot-id": snapshot_id,
                "statistics-path": self.location,
                "file-size-in-bytes": self.size,
                "file-footer-size-in-bytes": self.footer,
                "blob-metadata": [],
            }
        )
        return SetStatisticsUpdate(statistics=statistics)


def put_aside(table: Table, properties: Mapping[str, str]) -> tuple[dict[str, str], StateFile | None]:
    """The properties for a summary, and the file with their long parts; None if they are short.

    Raises:
        StorageError, Unavailable: the file could not be written.
    """
    long = long_parts(properties)
    if not long:
        return {**properties}, None
    location = table.location_provider().new_metadata_location(f"batchmerge-{uuid.uuid4()}.puffin")
    content, footer = to_puffin(long)
    with catalog_errors(location), table.io.new_output(location).create() as file:
        file.write(content)
    return shortened(properties, location), StateFile(location, len(content), footer)


def long_parts(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties to put into the file; none if all are short."""
    long = {name: value for name, value in properties.items() if name in LONG and value != _THERE}
    return long if sum(map(len, long.values())) > _MOST else {}


def shortened(properties: Mapping[str, str], location: str) -> dict[str, str]:
    """The properties without their long parts, which are in the file."""
    return {**properties, **dict.fromkeys(long_parts(properties), _THERE), STATE_FILE: location}


def to_puffin(long: Mapping[str, str]) -> tuple[bytes, int]:
    """A file with one blob (Iceberg's Puffin spec), and the size of its footer."""
    blob, start = zlib.compress(json.dumps(long).encode(), 6), len(MAGIC_BYTES)
    described = PuffinBlobMetadata.model_validate(
        {"type": _BLOB, "fields": [], "snapshot-id": -1, "sequence-number": -1, "offset": start, "length": len(blob)}
    )
    payload = Footer(blobs=[described]).model_dump_json(by_alias=True, exclude_none=True).encode()
    footer = MAGIC_BYTES + payload + len(payload).to_bytes(4, "little") + bytes(4) + MAGIC_BYTES
    return MAGIC_BYTES + blob + footer, len(footer)


class Carried(Mapping[str, str]):
    """The complete properties of a summary; the file is read on first access to a property that is in it.

    Attributes:
        io: reads the file.
    """

    def __init__(self, summary: Mapping[str, str], io: FileIO) -> None:
        self._summary, self.io = summary, io

    def __getitem__(self, name: str) -> str:
        value = self._summary[name]
        return _read(self.io, self._summary[STATE_FILE])[name] if value == _THERE else value

    def __contains__(self, name: object) -> bool:
        return name in self._summary

    def __iter__(self) -> Iterator[str]:
        return iter(self._summary)

    def __len__(self) -> int:
        return len(self._summary)


@lru_cache(_STAY_READ)
def _read(io: FileIO, location: str) -> Mapping[str, str]:
    with catalog_errors(location), io.new_input(location).open() as file:
        puffin = PuffinFile(file.read())
    found: dict[str, str] = json.loads(zlib.decompress(puffin.get_blob_payload(puffin.footer.blobs[0])))
    return found
