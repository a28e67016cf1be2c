"""Spark's errors in our tree: what is transient, what is terminal, and the first line of why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.base import RetriesExceeded
from pyspark.errors.exceptions.connect import SparkConnectGrpcException, SparkException, UnknownException

from resources.carried_errors import carried_by
from resources.errors import (
    BatchmergeError,
    CommitFailed,
    ConfigurationError,
    Interrupted,
    SchemaRefused,
    StorageError,
    TerminalError,
    TransientError,
    Unavailable,
)

_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")

# Iceberg's words for a commit that lost (a newer run may also have removed the attempt's branch), not its
# ValidationException: that is also raised for what no retry fixes.
_CONFLICT = (
    "CommitFailedException",
    "Cannot commit",
    "Found conflicting",
    "Found new conflicting",
    "Missing required files to delete",
    "Deleted manifest .* could not be found in the latest snapshot",
    "Cannot determine history between",
    "older than last sequence number",
    r"Cannot use branch \(does not exist\)",
    "Cannot find ref attempt--",
    "TABLE_OR_VIEW_NOT_FOUND.*`branch_attempt--",
)

# Marks in Spark's text, and our error.
_Known = tuple[tuple[str, ...], type[BatchmergeError], str, str]

# What catalogs, their databases and object stores say of credentials, in the words of Iceberg's Java libraries. NIO's
# exception is about a local file.
_REFUSED: list[_Known] = [
    (
        ("ExpiredToken", r"token (included in the request )?(has|is) expired"),
        Unavailable,
        "Spark's credentials for the catalog or the object store have expired",
        "run again if the catalog gives them; otherwise renew those in `spark_properties` of its connection",
    ),
    (
        (
            r"NotAuthorizedException|ForbiddenException|invalid_client|[Ss]tatus [Cc]ode:? 40[13]\b",
            r"40[13] (Unauthorized|Forbidden)|(?<!nio\.file\.)Access ?[Dd]enied|InvalidAccessKeyId",
            r"SignatureDoesNotMatch|request signature we calculated",
            r"password authentication failed|no pg_hba\.conf entry",
        ),
        ConfigurationError,
        "the catalog or the object store refuses Spark",
        "correct `uri`, `credential` or `token` of the catalog's connection, the store's keys in its "
        "`spark_properties`, or the identity and the rights of Spark's server and executors",
    ),
]

_KNOWN: list[_Known] = [
    (
        ("NOT_NULL_ASSERT_VIOLATION",),
        SchemaRefused,
        "a column of the table is `not null`, and a row that is landed has no value there",
        "the row was landed when the file declared the column otherwise: declare it without `not null`, and the table "
        "follows",
    ),
    (
        ("OPERATION_CANCELED", "OPERATION_ABANDONED", "interrupted by", "SparkJobCancelled", "was cancelled"),
        Interrupted,
        "a newer run of this role interrupted the work",
        "nothing to do: the newer run goes on",
    ),
    (
        _CONFLICT,
        CommitFailed,
        "another writer has changed the table while this one wrote",
        "nothing to do: it is tried again",
    ),
    (
        ("No space left on device", "Disk quota exceeded"),
        StorageError,
        "the warehouse's disk is full",
        "free space, then run again",
    ),
    (
        ("Permission denied", "Read-only file system", "Mkdirs failed", "[Nn]ot a directory", r"errors\.StorageError"),
        StorageError,
        "the warehouse cannot be written",
        "give the user of Spark's workers write permission on the warehouse; if they have it, a partition's value is "
        "too long for the name of a folder: partition a new table by truncate(20, column)",
    ),
    (
        ("SQLITE_BUSY", "database is locked", "Failed to connect to", "UncheckedSQLException", "Connection refused"),
        Unavailable,
        "Spark cannot use the catalog or the store",
        "check that it is there, writable and not locked by another process",
    ),
]


@contextmanager
def spark_errors(where: str) -> Iterator[None]:
    """Turns Spark's exceptions into our error tree: what is transient, what is terminal, and the first line of why."""
    try:
        yield
    except (PySparkException, grpc.RpcError) as problem:
        said = str(problem)
        if own := carried_by(said):
            raise own from problem
        if refused := _classified(_REFUSED, said, where):
            raise refused from None  # a server may repeat what it was sent
        raise _classified(_KNOWN, said, where) or _unclassified(problem, where) from problem


def _unclassified(problem: Exception, where: str) -> BatchmergeError:
    """Our error by the exception's class. Spark Connect's are all gRPC exceptions; those it knows are subclasses."""
    if isinstance(problem, RetriesExceeded | grpc.RpcError) or type(problem) is SparkConnectGrpcException:
        return Unavailable(
            f"Spark does not answer as it should: {_first_line(problem)}",
            where=where,
            remedy="check the Spark connection (`batchmerge status`) and the server's log",
        )
    if lacks := _NO_MODULE.search(str(problem)):
        return ConfigurationError(
            f"the Python of Spark's workers has no module {lacks[1]}",
            where=where,
            remedy="install there what the run has, and the same version of Batchmerge (docs/production.md), then "
            "restart the Spark Connect server",
        )
    # A job that failed, or an exception of a library that Spark Connect does not know: a node, a store, a network.
    if isinstance(problem, SparkException | UnknownException):
        return TransientError(
            f"Spark could not finish the work: {_first_line(problem)}",
            where=where,
            remedy="run again; if it happens again, see the Spark server's log",
        )
    return TerminalError(
        f"Spark refused the work: {_first_line(problem)}", where=where, remedy="see the Spark server's log"
    )


def _classified(known: list[_Known], text: str, where: str) -> BatchmergeError | None:
    for marks, kind, what, remedy in known:
        if any(re.search(mark, text) for mark in marks):
            return kind(what, where=where, remedy=remedy)
    return None


def _first_line(problem: BaseException) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    if lines and "Python worker" in lines[0]:
        # Only the class of what was raised there: its text may have a record's value.
        kinds = [found[1] for line in lines if (found := re.match(r"([A-Za-z_][\w.]*(?:Error|Exception))\b", line))]
        return f"{kinds[-1] if kinds else 'an exception'} in a Python worker"
    return lines[0][:300] if lines else type(problem).__name__
