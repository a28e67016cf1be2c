"""Files of a table with credentials from the catalog, which expire after a while, also during a long write."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile

from resources.errors import TransientError

# Properties with the time of expiry, in milliseconds since 1970: of S3, Google's store, Azure's (for each account).
_ENDS = ("s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at", "adls.sas-token-expires-at-ms")
# Seconds before their expiry at which credentials are renewed, so that what is begun can end; at most half their time.
_LONGEST_USE = 300.0
# Seconds before it until which they are used where the catalog does not answer, and from one question to the next.
_SHORTEST_USE, _PAUSE = 60.0, 5.0


class RenewedFileIO(FileIO):
    """Renews its credentials before they expire. A copy of it on a Spark worker renews its own.

    `renew` loads the table again and gives its client; it raises what the catalog does. A catalog that does not answer
    is asked again: what there is can be used until shortly before its end.
    """

    _renew_at: float

    def __init__(self, io: FileIO, renew: Callable[[], FileIO]) -> None:
        super().__init__(io.properties)
        self._renew, self._asking = renew, Lock()
        self._take(io)

    def new_input(self, location: str) -> InputFile:
        return self._now().new_input(location)

    def new_output(self, location: str) -> OutputFile:
        return self._now().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._now().delete(location)

    def _now(self) -> FileIO:
        with self._asking:
            if time.time() >= self._renew_at:
                try:
                    self._take(self._renew())
                except TransientError:
                    if time.time() >= self._ends - _SHORTEST_USE:
                        raise
                    self._renew_at = time.time() + _PAUSE
            return self._io

    def _take(self, io: FileIO) -> None:
        ends, now = ends_at(io) or float("inf"), time.time()
        self._io, self.properties, self._ends = io, io.properties, ends
        self._renew_at = ends - min(_LONGEST_USE, (ends - now) / 2)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_asking"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _asking=Lock())


def ends_at(io: FileIO) -> float | None:
    """When its credentials expire, in seconds since 1970; None: they do not."""
    found = [int(value) for name, value in io.properties.items() if name.startswith(_ENDS) and str(value).isdigit()]
    return min(found) / 1000 if found else None
