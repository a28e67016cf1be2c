"""The live entries of manifests, which never change: a commit needs some of them several times, and the next batch's
merge most of them again."""

from __future__ import annotations

from threading import Lock

from cachetools import LRUCache, cached
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile

# The entries that are remembered, in all; an entry of a table with many columns has some 10 KB. A manifest counts too.
_MOST = 5_000


@cached(
    LRUCache[str, tuple[ManifestEntry, ...]](_MOST, getsizeof=lambda found: 1 + len(found)),
    key=lambda manifest, _io: manifest.manifest_path,
    lock=Lock(),
)
def live_entries(manifest: ManifestFile, io: FileIO) -> tuple[ManifestEntry, ...]:
    """The entries of a committed manifest, without deleted ones; not to be changed."""
    return tuple(manifest.fetch_manifest_entry(io))
