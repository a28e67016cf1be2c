"""What the stack has to know of a service, and where a service finds its place on this machine."""

from __future__ import annotations

import os
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

Say = Callable[[str], None]
"""Prints one line for the person who waits."""

Lake = Literal["file", "s3", "gcs"]
"""Where the lake's files are: in a folder of the data folder, or in a local object store."""

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Command:
    """A process to start: argv, and environment variables besides the inherited ones."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """One data folder and the ports that its services keep.

    Attributes:
        home: the data folder.
        ports: service name -> port name -> port.
        lake: where the files of the local lake are.
    """

    home: Path
    ports: Mapping[str, Mapping[str, int]]
    lake: Lake = "file"

    def folder(self, service: str) -> Path:
        """The service's own folder, made on first use."""
        folder = self.home / "services" / service
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def log(self, service: str) -> Path:
        return self.home / "logs" / f"{service}.log"

    def port(self, service: str, name: str) -> int:
        return self.ports[service][name]

    def address(self, service: str, name: str) -> str:
        return f"{HOST}:{self.port(service, name)}"


class Service(ABC):
    """One kind of service. Holds no state: all of it is on disk below `Site.home`.

    Attributes:
        name: also the names of its folder and log.
        needs: services that must be ready before this one starts.
        port_names: the ports it listens on; the first is the one to show.
        patience: seconds from start to ready on a slow machine, downloads not counted.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    port_names: ClassVar[tuple[str, ...]]
    patience: ClassVar[float] = 300

    def unavailable(self) -> str | None:
        """Why this service cannot run on this machine, or None."""
        return None

    @abstractmethod
    def prepare(self, site: Site, say: Say) -> Command:
        """Downloads what is missing, writes the configuration, and says how to start."""

    @abstractmethod
    def ready(self, site: Site) -> bool:
        """Asks the service itself, by its own protocol, within a few seconds."""

    def is_outdated(self, site: Site) -> bool:
        """Whether the running service was started by other code of Batchmerge, and refuses ours."""
        del site
        return False

    def connections(self, site: Site) -> dict[str, dict[str, Any]]:
        """Entries for `connections.yaml`, by name."""
        del site
        return {}


def answers(request: str | urllib.request.Request) -> bool:
    """Whether a service answers this request with status 200."""
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def cache_folder() -> Path:
    """Where downloads are kept for all data folders: ``BATCHMERGE_CACHE``, else ``~/.cache/batchmerge``."""
    named = os.environ.get("BATCHMERGE_CACHE")
    return Path(named).absolute() if named else Path.home() / ".cache" / "batchmerge"
