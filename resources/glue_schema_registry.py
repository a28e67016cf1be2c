"""AWS Glue Schema Registry: schemas by the ids of their versions, asked through AWS's own library (boto3).

Its errors are named by their kind only: their texts may repeat keys, or what a program that gives keys has answered.

Source: AWS's documentation, "Schema Registry API", GetSchemaVersion. A version never changes, so it is asked for once
per process.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any

from resources.connections import GlueSchemaRegistryConnection, secret_text
from resources.errors import BatchmergeError, ConfigurationError, TerminalError, Unavailable
from resources.stored_schema import SchemaId, StoredSchema

_NOT_THERE = "EntityNotFoundException"
_NO_VERSION = "00000000-0000-0000-0000-000000000000"
# Kinds of botocore's errors: of connections, and of the services on a machine that give keys.
_PASSING = {"ConnectionError", "HTTPClientError", "MetadataRetrievalError", "CredentialRetrievalError"}
_NO_KEYS = {"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "TokenRetrievalError"}
# Parts of AWS's codes: who asks is unknown, or not allowed to; ask later.
_REFUSED = (
    "AccessDenied",
    "UnrecognizedClient",
    "InvalidClientToken",
    "Signature",
    "ExpiredToken",
    "AuthenticationToken",
)
_LATER = ("Throttl", "RequestLimitExceeded", "InternalService", "ServiceUnavailable")


class GlueSchemaRegistry:
    """The registries of one account and region; `name` is the connection's name."""

    def __init__(self, name: str, connection: GlueSchemaRegistryConnection) -> None:
        self.name = name
        self._connection = connection
        self._known: dict[str, StoredSchema] = {}

    def by_id(self, schema_id: SchemaId) -> StoredSchema | None:
        """The schema of a version's id; None: there is none, as of all ids that are numbers."""
        if isinstance(schema_id, int):
            return None
        if schema_id not in self._known:
            found = self._version(schema_id)
            if found is None:
                return None
            self._known[schema_id] = StoredSchema(schema_id, found["DataFormat"], (found["SchemaDefinition"],), ("",))
        return self._known[schema_id]

    def latest(self, subject: str) -> None:
        """None: producers may name schemas as they like."""
        del subject

    def answers(self) -> None:
        """Asks for a version that does not exist, which needs no other permission than landing does."""
        self._version(_NO_VERSION)

    @property
    def _where(self) -> str:
        return f"schema registry {self.name}"

    def _version(self, version_id: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._client.get_schema_version(SchemaVersionId=version_id)
        except BatchmergeError:
            raise
        except Exception as problem:
            if _code(problem) == _NOT_THERE:
                return None
            raise self._failure(problem) from None
        return found

    @cached_property
    def _client(self) -> Any:
        try:
            # Imported late: it takes half a second.
            import boto3
            from botocore.config import Config
        except ImportError:
            raise ConfigurationError(
                "AWS Glue Schema Registry needs a library that is not installed",
                where=self._where,
                remedy="pip install 'batchmerge[glue]', where Dagster runs",
            ) from None
        # At DEBUG it logs signatures.
        logging.getLogger("botocore").setLevel(logging.INFO)
        given = self._connection
        session = boto3.Session(
            aws_access_key_id=given.access_key_id,
            aws_secret_access_key=secret_text(given.secret_access_key) or None,
            aws_session_token=secret_text(given.session_token) or None,
            profile_name=given.profile,
            region_name=given.region,
        )
        seconds = given.timeout_seconds
        limits = Config(connect_timeout=seconds, read_timeout=seconds, retries={"mode": "standard", "max_attempts": 2})
        return session.client("glue", endpoint_url=given.endpoint_url, config=limits)

    def _failure(self, problem: Exception) -> BatchmergeError:
        kinds = {kind.__name__ for kind in type(problem).__mro__}
        code, status = _code(problem), _status(problem)
        why = code or type(problem).__name__
        if kinds & _PASSING or status == 429 or status >= 500 or any(part in code for part in _LATER):
            remedy = "nothing to do: it is tried again; if it stays, check the network's way to AWS"
            return Unavailable(f"AWS Glue does not answer: {why}", where=self._where, remedy=remedy)
        if kinds & _NO_KEYS or any(part in code for part in _REFUSED):
            return ConfigurationError(
                "there are no AWS keys" if kinds & _NO_KEYS else f"AWS Glue refuses the credentials: {why}",
                where=self._where,
                remedy="give this machine an AWS identity, or the connection `profile` or `access_key_id` and "
                "`secret_access_key`, with the permission glue:GetSchemaVersion",
            )
        remedy = "check `region` and `endpoint_url` of the connection"
        return TerminalError(f"AWS Glue refuses the request: {why}", where=self._where, remedy=remedy)


def _code(problem: Exception) -> str:
    return str((getattr(problem, "response", None) or {}).get("Error", {}).get("Code", ""))


def _status(problem: Exception) -> int:
    return int((getattr(problem, "response", None) or {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
