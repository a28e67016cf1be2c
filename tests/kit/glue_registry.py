"""A stand-in for AWS Glue Schema Registry: GetSchemaVersion of AWS's JSON protocol; and records as AWS's serializers
write them (awslabs/aws-glue-schema-registry)."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from uuid import NAMESPACE_URL, UUID, uuid5

from tests.kit.web import Handler, serving


class GlueService(Handler):
    """Answers requests.

    Attributes:
        versions: schemas by the ids of their versions.
        failure: status and code with which it refuses every request.
        asked: the ids of all requests, with the keys that signed them.
    """

    versions: ClassVar[dict[str, dict[str, Any]]]
    failure: ClassVar[tuple[int, str] | None]
    asked: ClassVar[list[tuple[str, str]]]

    @classmethod
    def register(cls, text: str, format: str) -> str:
        """The id of the schema's version."""
        version = str(uuid5(NAMESPACE_URL, text))
        cls.versions[version] = {
            "SchemaVersionId": version,
            "SchemaDefinition": text,
            "DataFormat": format,
            "SchemaArn": "arn:aws:glue:eu-west-1:123456789012:schema/own/t",
            "VersionNumber": 1,
            "Status": "AVAILABLE",
        }
        return version

    def do_POST(self) -> None:
        wanted = json.loads(self.body())["SchemaVersionId"]
        signed = self.headers["Authorization"].split("Credential=")[1].split("/")[0]
        self.asked.append((wanted, signed))
        assert self.headers["X-Amz-Target"] == "AWSGlue.GetSchemaVersion"
        if self.failure:
            self._refuse(*self.failure)
        elif wanted in self.versions:
            self.answer(200, json.dumps(self.versions[wanted]).encode(), {"Content-Type": "application/x-amz-json-1.1"})
        else:
            self._refuse(400, "EntityNotFoundException")

    def _refuse(self, status: int, code: str) -> None:
        content = {"__type": code, "Message": f"key {self.headers['Authorization']} is refused"}
        self.answer(status, json.dumps(content).encode(), {"Content-Type": "application/x-amz-json-1.1"})


@contextmanager
def glue_service() -> Iterator[tuple[str, type[GlueService]]]:
    """The service's address, and what it has."""

    class Own(GlueService):
        versions: ClassVar[dict[str, dict[str, Any]]] = {}
        failure: ClassVar[tuple[int, str] | None] = None
        asked: ClassVar[list[tuple[str, str]]] = []

    with serving(Own) as url:
        yield url, Own


def framed(version: str, content: bytes, compressed: bool = False) -> bytes:
    """A record as AWS's serializers write it."""
    rest = zlib.compress(content) if compressed else content
    return bytes([3, 5 if compressed else 0]) + UUID(version).bytes + rest
