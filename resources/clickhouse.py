"""ClickHouse over HTTP(S): one server of a connection, statements with bound parameters, errors in our own words.

Nothing is retried in here: what may be sent again, and under which token, only the caller knows.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections import UserString
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

import clickhouse_connect
import pyarrow as pa
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.external import ExternalData
from clickhouse_connect.driver.httputil import check_env_proxy, get_pool_manager

from resources.clickhouse_errors import clickhouse_errors
from resources.connections import ClickHouseConnection, secret_text
from resources.errors import (
    ConfigurationError,
)

_LOG = logging.getLogger("batchmerge")

# The client's own log names the server and the statement; errors reach people through `clickhouse_errors`.
logging.getLogger("clickhouse_connect").setLevel(logging.CRITICAL)

_LIMITS = ("distinct", "group_by", "join", "read", "result", "set", "sort", "timeout", "transfer")
_SETTINGS = {
    # A limit of the user's profile fails a statement, which may otherwise end early as if it were done.
    **{f"{limit}_overflow_mode": "throw" for limit in _LIMITS},
    # Questions are answered with all rows that were inserted, also where an address stands for several replicas: those
    # of ClickHouse Cloud, and those that take inserts by `insert_quorum`.
    "select_sequential_consistency": "1",
}

# What a text in an array has a backslash before.
_ESCAPED = re.compile(r"[\\'`\t\n]")

T = TypeVar("T")
Row = dict[str, Any]


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
            return list(client.query(sql, parameters=_bound(parameters)).named_results())

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
            return client.query_arrow(sql, _bound(parameters), use_strings=True, external_data=sent)

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
                client.raw_query(sql, parameters=_bound(parameters), settings=dict(settings or {}))
            else:
                client.command(sql, parameters=_bound(parameters), settings=dict(settings or {}), data=data)


def _bound(parameters: Mapping[str, object] | None) -> dict[str, object]:
    """Parameters for the client. Arrays of texts are in their final form: the client would look at each character,
    which takes 50 ms for the names of 5,000 topic-partitions."""

    def final(value: object) -> object:
        if not (isinstance(value, list) and value and all(isinstance(one, str) for one in value)):
            return value
        quoted = ("'" + _ESCAPED.sub(r"\\\g<0>", one) + "'" for one in value)
        return UserString(f"[{', '.join(quoted)}]")

    return {name: final(value) for name, value in (parameters or {}).items()}


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
        settings={**_SETTINGS, **connection.settings},
        autogenerate_session_id=False,
        form_encode_query_params=True,
        tz_mode="aware",
    )


def _split(endpoint: str, secure: bool) -> tuple[str, int]:
    host, _, port = endpoint.rpartition(":")
    if host and port.isdecimal():
        return host.strip("[]"), int(port)
    return endpoint.strip("[]"), 8443 if secure else 8123
