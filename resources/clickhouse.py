"""ClickHouse over HTTP(S): one server of a connection, statements with bound parameters, errors in our own words.

Nothing is retried in here: what may be sent again, and under which token, only the caller knows.
"""

from __future__ import annotations

import logging
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

import clickhouse_connect
import pyarrow as pa
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError, Error
from clickhouse_connect.driver.external import ExternalData
from clickhouse_connect.driver.httputil import check_env_proxy, get_pool_manager

from resources.connections import ClickHouseConnection, secret_text
from resources.errors import (
    BatchmergeError,
    CommitFailed,
    ConfigurationError,
    Interrupted,
    StorageError,
    TerminalError,
    Unavailable,
)

_LOG = logging.getLogger("batchmerge")

# The client's own log names the server and the statement; errors reach people through `clickhouse_errors`.
logging.getLogger("clickhouse_connect").setLevel(logging.CRITICAL)

T = TypeVar("T")
Row = dict[str, Any]

# Codes that ClickHouse's own Kafka Connect sink retries (its Utils.java; but not 164, which needs a person), and
# those of a server that is starting or stopping, or whose replica or keeper does not answer.
RETRIABLE_CODES = frozenset(
    {3, 107, 159, 198, 202, 203, 209, 210, 225, 236, 241, 242, 252, 279, 285, 286, 319, 341, 425, 439, 999}
)
_QUERY_WAS_CANCELLED = 394
_THROW_IF = 395
_STORAGE_CODES = {243: "its disk is full", 74: "it cannot read its disk", 75: "it cannot write its disk"}
# Unknown user, or wrong password.
_NOT_KNOWN = frozenset({192, 193, 194, 516})
# The user's profile allows to read only, or not to change a setting.
_NOT_ALLOWED = frozenset({164, 452})
# The setting's name in the messages of the server and of the client, which looks at the settings before it sends any.
_SETTING = re.compile(r"Setting (\w+) (?:is readonly|should)|Cannot modify '(\w+)' setting")
# The user lacks a right.
_NOT_PERMITTED = 497
# The first missing right in the server's message, and what it is for.
_GRANT = re.compile(r"necessary to have the grant ([A-Z ]+)(?:\([^)]*\))? ON ([\w*]+(?:\.[\w*]+)?)(?=\.?(?:[\s,]|$))")
# An error of Keeper, whose message says which one.
_KEEPER = 999
_TOO_MANY_PARTITIONS = "Too many partitions for single INSERT block"

# The message of the fence in every insert: `throwIf(owner is another, …)`.
LEASE_LOST = "batchmerge: the lease belongs to another run"


class ClickHouseServer:
    """One endpoint of a connection.

    Attributes:
        where: how errors name it: connection and address.
    """

    def __init__(
        self, name: str, connection: ClickHouseConnection, endpoint: str, authority: str | None = None
    ) -> None:
        self.name = name
        self.connection = connection
        self.endpoint = endpoint
        self.where = f"clickhouse {name} ({endpoint})"
        # On a worker of Spark, which does not have `ca_file`.
        self._carried = authority

    def __reduce__(self) -> tuple[type[ClickHouseServer], tuple[str, ClickHouseConnection, str, str]]:
        return ClickHouseServer, (self.name, self.connection, self.endpoint, self._authority)

    def with_time(self, seconds: int) -> ClickHouseServer:
        """This server, with a time limit for one statement of at least this many seconds."""
        limit = max(seconds, self.connection.statement_timeout_seconds)
        waits = self.connection.model_copy(update={"statement_timeout_seconds": limit})
        return ClickHouseServer(self.name, waits, self.endpoint, self._carried)

    @cached_property
    def _authority(self) -> str:
        """The certificate authority as text; empty: one of those that the machine trusts. Each statement asks for it.

        Raises:
            ConfigurationError: its file cannot be read, or holds no certificate.
        """
        file = self.connection.ca_file if self.connection.secure else None
        if self._carried is not None or file is None:
            return self._carried or ""
        try:
            text = Path(file).read_text("ascii", errors="ignore")  # a comment may have other letters
        except OSError as problem:
            raise ConfigurationError(
                f"cannot be read: {problem.strerror}",
                where=file,
                remedy="correct `ca_file` in the connections file, or the file's permissions",
            ) from None
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
        except (ssl.SSLError, ValueError):
            raise ConfigurationError(
                "holds no certificate in PEM format",
                where=file,
                remedy="name a PEM file with the authority's certificate in `ca_file` of the connections file",
            ) from None
        return text

    @contextmanager
    def _client(self) -> Iterator[Client]:
        """The client, for one statement; its exceptions become our errors."""
        password = secret_text(self.connection.password)
        with clickhouse_errors(self.where):
            client = _open(self.connection.model_dump_json(), password, self.endpoint, self._authority)
        with clickhouse_errors(self.where):
            yield client

    def rows(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[Row]:
        """The rows of a SELECT, by column name; times are in UTC."""
        with self._client() as client:
            return list(client.query(sql, parameters=dict(parameters or {})).named_results())

    def arrow(self, sql: str) -> pa.Table:
        """The rows of a SELECT as Arrow."""
        with self._client() as client:
            return client.query_arrow(sql, use_strings=True)

    def batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        """The rows of a SELECT as Arrow, in batches as the server sends them."""
        with self._client() as client, client.query_arrow_stream(sql, use_strings=True) as found:
            yield from found

    def select_with(
        self, sql: str, data: pa.Table, structure: str, parameters: Mapping[str, object] | None = None
    ) -> pa.Table:
        """The rows of a SELECT over `data`, which is sent with it, its columns having these types."""
        sent = ExternalData(data=to_arrow_file(data), file_name="data", fmt="Arrow", structure=structure)
        with self._client() as client:
            return client.query_arrow(sql, dict(parameters or {}), use_strings=True, external_data=sent)

    def execute(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        settings: Mapping[str, object] | None = None,
        data: bytes | None = None,
    ) -> None:
        """Runs one statement; `data` is what an INSERT reads, in the format that the statement names."""
        with self._client() as client:
            if data is None:
                # As a form: long parameters (the offsets of thousands of partitions) do not fit into an address.
                client.raw_query(sql, parameters=dict(parameters or {}), settings=dict(settings or {}))
            else:
                client.command(sql, parameters=dict(parameters or {}), settings=dict(settings or {}), data=data)


def to_arrow_file(rows: pa.Table) -> bytes:
    """Rows in Arrow's file format, as one record batch; compressed, which costs less than sending twice the bytes."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("lz4"), use_threads=False)
    with pa.ipc.new_file(sink, rows.schema, options=options) as writer:
        for batch in rows.combine_chunks().to_batches():
            writer.write_batch(batch)
    return _Data(sink.getvalue())


class _Data(bytes):
    """The bytes of an insert. The client would decode all of them to see whether they begin with SELECT (0.2 s of CPU
    for 12 MB)."""

    def decode(self, *_arguments: object, **_named: object) -> str:
        return ""


@cache
def _open(connection_json: str, password: str, endpoint: str, authority: str) -> Client:
    """One client for each process and endpoint: to open one costs several round trips, and threads can share it."""
    connection = ClickHouseConnection.model_validate_json(connection_json)
    host, port = _split(endpoint, connection.secure)
    trusts = None
    if authority:
        trusts = get_pool_manager(ca_cert_data=authority, https_proxy=check_env_proxy("https", host, port))
    return clickhouse_connect.get_client(
        host=host,
        port=port,
        username=connection.username,
        password=password,
        secure=connection.secure,
        pool_mgr=trusts,
        connect_timeout=max(1, int(connection.timeout_seconds)),
        send_receive_timeout=connection.statement_timeout_seconds,
        settings=dict(connection.settings),
        autogenerate_session_id=False,
        form_encode_query_params=True,
        tz_mode="aware",
    )


def _split(endpoint: str, secure: bool) -> tuple[str, int]:
    host, _, port = endpoint.rpartition(":")
    if host and port.isdecimal():
        return host.strip("[]"), int(port)
    return endpoint.strip("[]"), 8443 if secure else 8123


def retried(work: Callable[[], T], tries: int = 6, first_pause: float = 0.2) -> T:
    """The result of `work`, which is tried again with doubling pauses while the server is unavailable, but not once it
    was silent for `_SILENT` seconds: others wait meanwhile. The fact `waited` is that of all tries.

    Only for work that may be sent twice. A lost lease and everything terminal is raised at once.
    """
    waited = 0.0
    for turn in range(tries):
        try:
            return work()
        except Unavailable as problem:
            if isinstance(seconds := problem.facts.get("waited"), int | float):
                waited += seconds
                problem.facts["waited"] = waited
            if turn == tries - 1 or waited >= _SILENT:
                raise
            _LOG.warning("%s; trying again", problem)
            time.sleep(first_pause * 2**turn)
    raise AssertionError("unreachable")


@contextmanager
def clickhouse_errors(where: str) -> Iterator[None]:
    """Turns the client's exceptions into our error tree; never with values or secrets of the statement. Where there was
    no answer, the fact `waited` says for how many seconds."""
    began = time.monotonic()
    try:
        yield
    except Error as problem:
        found = translated(problem.code, str(problem), where)
        if problem.code is None:
            found.facts["waited"] = time.monotonic() - began
        raise found from None
    except (ClickHouseError, OSError) as problem:
        found = _no_answer(str(problem), where, f"no answer ({type(problem).__name__})")
        found.facts["waited"] = time.monotonic() - began
        raise found from None


# Seconds without any answer, in all tries.
_SILENT = 60
NEWER_RUN = "nothing to do: the newer run goes on"
_CHECK = "check the address and `secure` in the connections file and that the server runs"


# In the client's words, where no answer came from ClickHouse, and none will.
_MISTAKES = [
    (
        re.compile("CERTIFICATE_VERIFY_FAILED"),
        "the server's certificate is not trusted",
        "name its authority in `ca_file`, and the server as its certificate does in `endpoints`",
    ),
    (
        re.compile("WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE"),
        "there is no TLS on this port",
        "correct `secure` of the connection, or the port in `endpoints`",
    ),
    (
        re.compile(r"received HTTP status (401|403|407)\b"),
        "something before ClickHouse refuses access",
        "correct `username` and `password` of the connection, or let the proxy pass its requests",
    ),
]


def _no_answer(message: str, where: str, what: str) -> BatchmergeError:
    for mark, wrong, remedy in _MISTAKES:
        if mark.search(message):
            return ConfigurationError(wrong, where=where, remedy=remedy)
    return Unavailable(what, where=where, remedy=_CHECK)


def translated(code: int | None, message: str, where: str) -> BatchmergeError:
    """Our error for a ClickHouse error code (None: the client's own error, or no answer at all)."""
    if code is None:
        return _not_allowed(message, where) if _SETTING.search(message) else _no_answer(message, where, "no answer")
    label = f"code {code}{_name(message)}"
    if code == _KEEPER and any(mark in message for mark in ("Node exists", "Bad version", "No node")):
        found: BatchmergeError = CommitFailed("another run has changed the state in Keeper meanwhile", where=where)
    elif code == _THROW_IF and LEASE_LOST in message:
        found = Interrupted("another run has taken this table over", where=where, remedy=NEWER_RUN)
    elif code == _QUERY_WAS_CANCELLED:
        found = Interrupted("the query was stopped", where=where, remedy="run again, if no newer run goes on")
    elif _TOO_MANY_PARTITIONS in message:
        found = ConfigurationError(
            f"one insert would touch more table partitions than ClickHouse allows ({label})",
            where=where,
            remedy="make chunk_rows smaller, or raise max_partitions_per_insert_block in the connection's `settings`",
        )
    elif code in RETRIABLE_CODES:
        found = Unavailable(f"ClickHouse asks to try again ({label})", where=where)
    elif code in _STORAGE_CODES:
        found = StorageError(f"{_STORAGE_CODES[code]} ({label})", where=where, remedy="repair the disk, then run again")
    elif code in _NOT_KNOWN:
        found = ConfigurationError(
            f"ClickHouse refuses the credentials ({label})",
            where=where,
            remedy="correct `username` and `password` of the connection in the connections file",
        )
    elif code in _NOT_ALLOWED:
        found = _not_allowed(message, where)
    elif code == _NOT_PERMITTED:
        found = ConfigurationError(
            f"ClickHouse denies access ({label})",
            where=where,
            remedy=f"grant the user (`username` of the connection) {_missing_grant(message)}; "
            "docs/security.md lists what its tables and `state_table` need",
        )
    else:
        found = TerminalError(
            f"ClickHouse refused the statement ({label})",
            where=where,
            remedy="its query log has the statement and the whole message",
        )
    found.facts["code"] = code
    return found


def _not_allowed(message: str, where: str) -> BatchmergeError:
    found = _SETTING.search(message)
    setting = f"`{found[1] or found[2]}`" if found else "settings, or to write"
    return ConfigurationError(
        f"the profile of the ClickHouse user does not allow to set {setting}",
        where=where,
        remedy="allow it in the user's profile: no `readonly`, and no constraint on settings that Batchmerge needs",
    )


def _missing_grant(message: str) -> str:
    """The right and what it is for, which hold no value."""
    found = _GRANT.search(message)
    return f"{found[1]} ON {found[2]}" if found else "the missing right"


def _name(message: str) -> str:
    """The error's symbolic name, which unlike its message never holds a value."""
    for word in reversed(message.replace("(", " ").replace(")", " ").split()):
        if word.isupper() and "_" in word and word.replace("_", "").isalnum():
            return f" {word}"
    return ""
