"""What reaches this process of the rows that it has moved: answers in bytes, and data files that it opens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFile
from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator

# Of what tests move: 300 bytes each, which no compression makes small.
ROWS = 4_000
# Of Spark, whatever is moved. ClickHouse's client begins by asking for all of the server's settings.
_MOST_BYTES, _MOST_FROM_SERVERS = 64_000, 300_000


def incompressible(n: int) -> str:
    return "".join(f"{n * 7919 + k:x}" for k in range(50))


@dataclass
class Received:
    """So far.

    Attributes:
        bytes_from_servers: whatever this process has read from connections of its own: ClickHouse, BigQuery.
    """

    bytes_from_spark: int = 0
    bytes_from_servers: int = 0
    data_files: list[str] = field(default_factory=list)


@contextmanager
def received() -> Iterator[Received]:
    """Counts while the context is open."""
    found = Received()
    send, open_ = ExecutePlanResponseReattachableIterator.send, PyArrowFile.open
    read_into = socket.SocketIO.readinto

    def counted(answers: Any, value: Any) -> Any:
        answer = send(answers, value)
        found.bytes_from_spark += answer.ByteSize()
        return answer

    def read(connection: socket.SocketIO, buffer: Any) -> int | None:
        size = read_into(connection, buffer)
        found.bytes_from_servers += size or 0
        return size

    def noted(file: PyArrowFile, seekable: bool = True) -> Any:
        if file.location.endswith(".parquet"):
            found.data_files.append(file.location)
        return open_(file, seekable)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExecutePlanResponseReattachableIterator, "send", counted)
        patch.setattr(socket.SocketIO, "readinto", read)
        patch.setattr(PyArrowFile, "open", noted)
        yield found


def check_no_rows(found: Received, times: int = 1) -> None:
    """None of `ROWS`, by what one merge into one server brings; so many times as much is no row of theirs either."""
    assert 0 < found.bytes_from_spark < times * _MOST_BYTES
    assert found.bytes_from_servers < times * _MOST_FROM_SERVERS
    assert found.data_files == []
