"""A stand-in for Confluent's Schema Registry, which names schemas by GUIDs too, as Apicurio does not. What
Confluent's own clients ask of it, it answers as that one does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit
from uuid import NAMESPACE_URL, uuid5

from tests.kit.web import Handler, serving

Schema = dict[str, Any]


def guid_of(schema: Schema) -> str:
    """The GUID of a schema, which is the same in every registry."""
    return str(uuid5(NAMESPACE_URL, json.dumps([schema["schema"], schema.get("references", [])])))


class GuidRegistry(Handler):
    """Answers requests.

    Attributes:
        schemas: the versions of each subject; ids are their numbers.
        hidden: GUIDs that it does not know.
        asked: the paths of all requests.
    """

    schemas: ClassVar[list[tuple[str, Schema]]]
    hidden: ClassVar[set[str]]
    asked: ClassVar[list[str]]

    @classmethod
    def register(cls, subject: str, text: str, kind: str = "AVRO") -> Schema:
        """The subject's version with this schema, a new one if there is none; as the registry answers."""
        schema = {"schema": text, "schemaType": kind}
        if (subject, schema) not in cls.schemas:
            cls.schemas.append((subject, schema))
        return cls.version(cls.schemas.index((subject, schema)))

    @classmethod
    def version(cls, place: int) -> Schema:
        subject, schema = cls.schemas[place]
        number = sum(other == subject for other, _ in cls.schemas[: place + 1])
        return {**schema, "id": place + 1, "guid": guid_of(schema), "subject": subject, "version": number}

    def do_GET(self) -> None:
        path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        self.asked.append("/".join(path))
        versions = [self.version(place) for place in range(len(self.schemas))]
        match path:
            case ["subjects"]:
                self._say(sorted({subject for subject, _ in self.schemas}))
            case ["schemas", "ids", number]:
                self._first([one for one in versions if str(one["id"]) == number], 40403)
            case ["schemas", "guids", guid]:
                self._first([one for one in versions if one["guid"] == guid and guid not in self.hidden], 40403)
            case ["subjects", subject, "versions", wanted]:
                of_subject = [one for one in reversed(versions) if one["subject"] == subject]
                self._first([one for one in of_subject if wanted in ("latest", str(one["version"]))], 40401)
            case _:
                self._say({"error_code": 404, "message": "HTTP 404 Not Found"}, 404)

    def do_POST(self) -> None:
        subject, given = unquote(urlsplit(self.path).path.split("/")[2]), json.loads(self.body())
        if urlsplit(self.path).path.endswith("/versions"):
            self._say(self.register(subject, given["schema"], given.get("schemaType", "AVRO")))
        else:  # whether the subject has this schema; Python's client sends Protobuf's as a descriptor
            versions = [self.version(place) for place in range(len(self.schemas))]
            self._first([one for one in reversed(versions) if one["subject"] == subject], 40403)

    def _first(self, found: list[Schema], error: int) -> None:
        self._say(found[0]) if found else self._say({"error_code": error, "message": "not found"}, 404)

    def _say(self, content: object, status: int = 200) -> None:
        self.answer(status, json.dumps(content).encode(), {"Content-Type": "application/vnd.schemaregistry.v1+json"})


@contextmanager
def guid_registry() -> Iterator[tuple[str, type[GuidRegistry]]]:
    """The registry's address, and what it has."""

    class Own(GuidRegistry):
        schemas: ClassVar[list[tuple[str, Schema]]] = []
        hidden: ClassVar[set[str]] = set()
        asked: ClassVar[list[str]] = []

    with serving(Own) as url:
        yield url, Own
