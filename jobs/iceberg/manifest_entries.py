"""The live entries of manifests, which never change: a commit needs some of them several times, and the next batch's
merge most of them again."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile

# The entries that are remembered, in all; an entry of a table with many columns has some 10 KB.
_MOST = 5_000
_KNOWN = OrderedDict[str, tuple[ManifestEntry, ...]]()
_LOCK = Lock()


def live_entries(manifest: ManifestFile, io: FileIO) -> tuple[ManifestEntry, ...]:
    """The entries of a committed manifest, without deleted ones; not to be changed."""
    path = manifest.manifest_path
    with _LOCK:
        found = _KNOWN.get(path)
        if found is not None:
            _KNOWN.move_to_end(path)
            return found
    found = tuple(manifest.fetch_manifest_entry(io))
    if len(found) < _MOST:
        _remember(path, found)
    return found


def _remember(path: str, found: tuple[ManifestEntry, ...]) -> None:
    with _LOCK:
        _KNOWN[path] = found
        # A manifest without entries counts too.
        left = sum(map(len, _KNOWN.values())) + len(_KNOWN) - _MOST
        while left > 0:
            left -= 1 + len(_KNOWN.popitem(last=False)[1])
