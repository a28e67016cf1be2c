"""An object store on this machine for the lake's files. Started only for a lake that is in it (`up --lake`)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from resources.local.jars import Bundle
from resources.local.service import Lake, Service, Site

BUCKET = "lake"


class ObjectStore(Service):
    """One kind of store.

    Attributes:
        name: also the name of the lake.
        libraries: those with which Spark reaches it; larger than all of Spark's others together.
    """

    name: ClassVar[Lake]
    libraries: ClassVar[Bundle]

    @abstractmethod
    def lake(self, site: Site) -> dict[str, Any]:
        """What the `lake` entry of connections.yaml says in place of a folder of this machine."""
