"""Which code of Batchmerge a process runs: Spark's server and its Python workers keep what they have loaded, also when
another version is installed, or a file of a checkout changed, while they run."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from resources.errors import ConfigurationError

STARTED_BY = "spark.batchmerge.code"
"""A setting of a local Spark server: OWN_CODE of the process that has started it."""

_ROOT = Path(__file__).parent.parent
_PARTS = ("jobs", "resources", "sql")
_SUFFIXES = (".py", ".sql.j2")
# Of an installation whose files cannot be read (in a ZIP file): it is taken for the same as any other.
_UNKNOWN = ""


def digest_of(root: Path) -> str:
    """A digest of the code below this folder, whatever the folder is called."""
    found = hashlib.sha256()
    try:
        for file in sorted(file for part in _PARTS for file in _files(f"{root}/{part}")):
            with open(file, "rb", buffering=0) as opened:
                text = opened.read()
            found.update(f"{file[len(str(root)) :]} {len(text)}\n".encode() + text)
    except OSError:
        return _UNKNOWN
    return found.hexdigest()[:16]


def _files(folder: str) -> Iterator[str]:
    """Of hundreds of files, which take three times as long by `Path.rglob`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith((".", "__pycache__")):
                continue
            if entry.is_dir():
                yield from _files(entry.path)
            elif entry.name.endswith(_SUFFIXES):
                yield entry.path


OWN_CODE = digest_of(_ROOT)
"""Of this process. Taken when this module is loaded, as later the files may be those of another version."""


def is_other_code(theirs: str) -> bool:
    return _UNKNOWN not in (theirs, OWN_CODE) and theirs != OWN_CODE


def other_code_in_server(address: str) -> ConfigurationError:
    return _other_code("this Spark server was started by other code of Batchmerge than that of this process", address)


def other_code_in_worker() -> ConfigurationError:
    """In a worker, whose code is not that of who sent it a task."""
    return _other_code(
        "Spark's Python workers have loaded other code of Batchmerge than the process that gives them work",
        f"{_ROOT} on {socket.gethostname()}",
    )


def _other_code(what: str, where: str) -> ConfigurationError:
    return ConfigurationError(
        what,
        where=where,
        remedy="have the same version everywhere, then restart the Spark Connect server (the local one by "
        "`batchmerge down`, then `batchmerge up`), code servers and Dagster's daemon",
    )
