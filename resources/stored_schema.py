"""What all registries of schemas give: schemas by the ids that records name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

SchemaId = int | str
"""What a record names its schema by: an id, or a GUID as text."""


@dataclass(frozen=True)
class StoredSchema:
    """A schema as the registry has it.

    Attributes:
        id: that was asked for.
        type: AVRO, PROTOBUF or JSON.
        texts: what it refers to, each after what it needs itself, and its own text at the end.
        names: the names by which `texts` are referred to; its own is empty.
        guid: its GUID, if the registry has said it besides the id; else empty.
    """

    id: SchemaId
    type: str
    texts: tuple[str, ...]
    names: tuple[str, ...]
    guid: str = ""


class Registry(Protocol):
    """A registry of schemas.

    All methods raise Unavailable if there is no answer, and ConfigurationError if the credentials are refused.
    """

    @property
    def name(self) -> str:
        """The name of its connection."""

    def by_id(self, schema_id: SchemaId) -> StoredSchema | None:
        """The schema of an id; None: the registry has none."""

    def latest(self, subject: str) -> StoredSchema | None:
        """The newest schema of `<topic>-key` or `<topic>-value`, which records will probably name; None: not known."""

    def answers(self) -> None:
        """Asks something, to see whether it answers."""
