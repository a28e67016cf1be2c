"""A Confluent-compatible Schema Registry over HTTP: schemas by id and by subject, with what they refer to.

Source: Confluent's documentation, "Schema Registry API Reference". An id's schema never changes, so it is asked for
once per process.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from resources.connections import SchemaRegistryConnection, secret_text
from resources.errors import ConfigurationError, TerminalError, Unavailable
from resources.stored_schema import SchemaId, StoredSchema

if TYPE_CHECKING:
    import httpx

_BUSY = (408, 429)
# No such subject, version, schema: Confluent's registry, Karapace and Apicurio's `ccompat` say so alike.
_NOT_THERE = (40401, 40402, 40403)


class SchemaRegistry:
    """One registry; `name` is its connection's name."""

    def __init__(self, name: str, connection: SchemaRegistryConnection) -> None:
        self.name = name
        self._connection = connection
        self._urls = [url.strip().rstrip("/") for url in connection.url.split(",") if url.strip()]
        self._known: dict[SchemaId, StoredSchema] = {}
        if any("@" in urlsplit(url).netloc for url in self._urls):
            raise ConfigurationError(
                "the address holds a user or a password, which errors would show",
                where=self._where,
                remedy="give `username` and `password` on their own",
            )

    def by_id(self, schema_id: SchemaId) -> StoredSchema | None:
        """The schema of an id or a GUID; None where the registry has none.

        Raises:
            Unavailable: no answer. ConfigurationError: the credentials are refused.
        """
        if schema_id not in self._known:
            found = self._of_guid(schema_id) if isinstance(schema_id, str) else self._get(f"/schemas/ids/{schema_id}")
            if found is None:
                return None
            self._known[schema_id] = self._stored(schema_id, found)
        return self._known[schema_id]

    def _of_guid(self, guid: str) -> Any:
        """None also if the registry has no GUIDs, and so not this page: whether it is a registry, another page says."""
        found = self._get(f"/schemas/guids/{guid}", absent=(404,))
        if found is None:
            self._get("/schemas/ids/0", absent=(403,))
        return found

    def latest(self, subject: str) -> StoredSchema | None:
        """The newest version of a subject; None where the registry has none, or does not show it to us: we may have
        permission for ids alone, which is enough to read records. Raises as `by_id` does."""
        found = self._get(f"/subjects/{quote(subject, safe='')}/versions/latest", absent=(403,))
        return self._stored(found["id"], found) if found else None

    def subjects(self) -> list[str]:
        """All subjects: a request that shows whether the registry answers. Raises as `by_id` does."""
        found = self._get("/subjects")
        if not isinstance(found, list):
            raise self._no_registry("the registry's answer is no list of subjects")
        return found

    def answers(self) -> None:
        self.subjects()

    def _stored(self, schema_id: SchemaId, found: dict[str, Any]) -> StoredSchema:
        texts: dict[str, str] = {}
        for reference in found.get("references", []):
            self._collect(reference, texts)
        kind = found.get("schemaType", "AVRO")
        texts_of_all = (*texts.values(), found["schema"])
        return StoredSchema(schema_id, kind, texts_of_all, (*texts, ""), found.get("guid", ""))

    def _collect(self, reference: dict[str, Any], texts: dict[str, str]) -> None:
        """Adds a referenced schema after those that it refers to."""
        if reference["name"] in texts:
            return
        subject, version = quote(reference["subject"], safe=""), reference["version"]
        found = self._get(f"/subjects/{subject}/versions/{version}", deleted="true")
        if found is None:
            raise TerminalError(
                f"subject {reference['subject']} has no version {version}, to which a schema refers",
                where=self._where,
                remedy="register it again",
            )
        for inner in found.get("references", []):
            self._collect(inner, texts)
        texts[reference["name"]] = found["schema"]

    @property
    def _where(self) -> str:
        return f"schema registry {self.name}"

    def _get(self, path: str, absent: Collection[int] = (), **params: str) -> Any:
        """The answer as JSON; None: the registry has no such thing. Tries each address of the registry.

        Args:
            absent: more statuses that say so.
        """
        import httpx  # late: a third of a second, for those who have a registry

        problem = ""
        with self._client() as client:
            for url in self._urls:
                try:
                    answer = client.get(url + path, params=params)
                except httpx.HTTPError as failed:
                    self._refuse_tls(url, failed)
                    problem = f"{url} does not answer: {type(failed).__name__}"
                    continue
                if answer.status_code in _BUSY or answer.status_code >= 500:
                    problem = f"{url} answers with status {answer.status_code}"
                    continue
                return None if answer.status_code in absent else self._content(answer)
        raise Unavailable(
            problem or "no address is given", where=self._where, remedy="check the registry and its connection's `url`"
        )

    def _refuse_tls(self, url: str, failed: Exception) -> None:
        """Raises ConfigurationError where one side does not take the other's certificate: no later try goes better."""
        cause: BaseException | None = failed
        while cause is not None and not isinstance(cause, ssl.SSLError):
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise ConfigurationError(
                f"the certificate of {url} is not trusted: {cause.verify_message}",
                where=self._where,
                remedy="name the certificate authority's file in `ca_file`, and the host as the certificate has it",
            ) from None
        if cause is not None and "ALERT" in (cause.reason or ""):
            raise ConfigurationError(
                f"{url} refuses the client's certificate, or wants one: {cause.reason}",
                where=self._where,
                remedy="name `certificate_file` and `key_file` of a certificate that the registry accepts",
            ) from None

    def _client(self) -> httpx.Client:
        import httpx

        connection = self._connection
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if connection.token:
            headers["Authorization"] = f"Bearer {connection.token.get_secret_value()}"
        try:
            return httpx.Client(
                auth=(connection.username, secret_text(connection.password)) if connection.username else None,
                headers=headers,
                timeout=connection.timeout_seconds,
                verify=_tls(connection),
                follow_redirects=False,
            )
        except OSError as problem:
            raise ConfigurationError(
                f"a TLS file cannot be used: {problem.strerror or problem}",
                where=self._where,
                remedy="correct `ca_file`, `certificate_file` or `key_file`",
            ) from None

    def _content(self, answer: httpx.Response) -> Any:
        if answer.status_code == 404 and _is_not_there(answer):
            return None
        if answer.status_code in (401, 403):
            raise ConfigurationError(
                f"the registry refuses the credentials (status {answer.status_code})",
                where=self._where,
                remedy="correct `username`, `password` or `token` of the connection",
            )
        if answer.status_code != 200:
            raise self._no_registry(f"the registry answers with status {answer.status_code}")
        try:
            return answer.json()
        except ValueError:
            raise self._no_registry("the registry's answer is not JSON") from None

    def _no_registry(self, what: str) -> TerminalError:
        remedy = "check that `url` is the root of a Confluent-compatible API"
        return TerminalError(what, where=self._where, remedy=remedy)


def _is_not_there(answer: httpx.Response) -> bool:
    """Whether a registry says that it has no such subject, version or schema: another server has no such page."""
    try:
        return answer.json()["error_code"] in _NOT_THERE
    except (ValueError, KeyError, TypeError):
        return False


def _tls(connection: SchemaRegistryConnection) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=connection.ca_file)
    if connection.certificate_file:
        # Without a password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(connection.certificate_file, connection.key_file, secret_text(connection.key_password))
    return context
