"""The error tree: what a message says, what travels with it, what is tried again."""

from __future__ import annotations

import errno
import inspect
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager

import grpc
import pytest
import requests
import sqlalchemy.exc
from confluent_kafka import KafkaError, KafkaException
from pyiceberg.exceptions import BadRequestError, CommitFailedException, CommitStateUnknownException, ForbiddenError
from pyspark.errors import AnalysisException as LocalAnalysisException
from pyspark.errors.exceptions.base import RetriesExceeded
from pyspark.errors.exceptions.connect import (
    AnalysisException,
    IllegalArgumentException,
    PythonException,
    SparkConnectGrpcException,
    SparkException,
    UnknownException,
)
from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator

from resources import errors
from resources.bigquery_errors import bigquery_errors
from resources.errors import (
    BatchmergeError,
    CommitFailed,
    CommitStateUnknown,
    ConfigurationError,
    Interrupted,
    OffsetsGone,
    SchemaRefused,
    StorageError,
    TerminalError,
    TransientError,
    Unavailable,
)
from resources.iceberg_errors import catalog_errors, storage_error
from resources.kafka_errors import settled
from resources.spark_errors import spark_errors
from tests.kit.arrow import copied

ALL = [c for c in vars(errors).values() if inspect.isclass(c) and issubclass(c, BatchmergeError)]


@pytest.mark.parametrize("kind", ALL)
def test_every_error_says_what_where_and_the_remedy_and_survives_pickling(kind: type[BatchmergeError]) -> None:
    problem = kind("it broke.", where="table t", remedy="repair it", wanted=7)
    assert str(problem) == "table t: it broke. Fix: repair it"
    again = copied(problem)
    assert type(again) is kind
    assert (str(again), again.where, again.remedy, again.facts) == (str(problem), "table t", "repair it", {"wanted": 7})


@pytest.mark.parametrize("kind", [c for c in ALL if c not in (BatchmergeError, TransientError, TerminalError)])
def test_every_error_is_either_transient_or_terminal(kind: type[BatchmergeError]) -> None:
    assert issubclass(kind, TransientError) is not issubclass(kind, TerminalError)


def test_error_without_where_and_remedy_is_what_happened() -> None:
    assert str(OffsetsGone("offset 3 is gone")) == "offset 3 is gone"


_LATE = "snapshot with sequence number 7 older than last sequence number 7"


# ---- catalog --------------------------------------------------------------------------------------------------------


def _broken(kind: type[sqlalchemy.exc.DBAPIError]) -> sqlalchemy.exc.DBAPIError:
    """As a driver reports a connection that was lost in the middle of a statement."""
    lost = Exception("SSL SYSCALL error: EOF detected")
    return kind("UPDATE secret", {"p": "secret"}, lost, connection_invalidated=True)


@pytest.mark.parametrize(
    ("raised", "becomes"),
    [
        (CommitFailedException("branch main has changed"), CommitFailed),
        (ValueError(f"Cannot add {_LATE}"), CommitFailed),
        (BadRequestError(f"ValidationException: Cannot add {_LATE}"), CommitFailed),
        (BadRequestError("secret"), ConfigurationError),
        (CommitStateUnknownException("lost"), CommitStateUnknown),
        (
            sqlalchemy.exc.OperationalError("UPDATE secret", {"p": "secret"}, Exception("database is locked")),
            Unavailable,
        ),
        (sqlalchemy.exc.DatabaseError("SELECT secret", {}, Exception("file is not a database")), ConfigurationError),
        (_broken(sqlalchemy.exc.InterfaceError), Unavailable),
        (_broken(sqlalchemy.exc.DBAPIError), Unavailable),
        (sqlalchemy.exc.TimeoutError("QueuePool limit of size 5 overflow 10 reached"), Unavailable),
        (requests.exceptions.ConnectionError("https://user:secret@host"), Unavailable),
        (requests.exceptions.SSLError("CERTIFICATE_VERIFY_FAILED secret"), ConfigurationError),
        (ForbiddenError("token secret"), ConfigurationError),
        (OSError(errno.ENOSPC, "No space left on device"), StorageError),
    ],
)
def test_catalog_errors_become_ours_without_their_secrets(raised: Exception, becomes: type[BatchmergeError]) -> None:
    with pytest.raises(becomes) as caught, catalog_errors("n.t"):
        raise raised
    assert type(caught.value) is becomes
    assert "secret" not in str(caught.value)
    assert caught.value.where == "n.t"


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EDQUOT, "quota"),
        (errno.EACCES, "write permission"),
        (errno.EROFS, "read-write"),
        (errno.EIO, "path and permissions"),
    ],
)
def test_storage_errors_name_what_to_do(number: int, says: str) -> None:
    assert says in storage_error(OSError(number, "x"), "n.t").remedy


def test_expired_credentials_may_be_those_of_the_connection() -> None:
    found = storage_error(OSError("AWS Error UNKNOWN (HTTP status 400): ExpiredToken Message: x has expired."), "n.t")
    assert type(found) is Unavailable
    assert all(text in found.remedy for text in ("the catalog", "`properties`", "`spark_properties`"))


@pytest.mark.parametrize(
    ("problem", "becomes"),
    [
        (
            OSError("When getting information for key 'k': AWS Error UNKNOWN (HTTP status 503) during HeadObject"),
            Unavailable,
        ),
        (OSError("When completing multiple part upload: AWS Error SLOW_DOWN during UploadPart operation"), Unavailable),
        (
            OSError("AWS Error NETWORK_CONNECTION during PutObject operation: curlCode: 28, Timeout was reached"),
            Unavailable,
        ),
        (OSError("google::cloud::Status(UNAVAILABLE: Permanent error GetObjectMetadata: 503)"), Unavailable),
        (OSError(errno.EBUSY, "Please reduce your request rate."), Unavailable),
        (OSError(errno.ECONNRESET, "Connection reset by peer"), Unavailable),
        (OSError("When writing: AWS Error ACCESS_DENIED (HTTP status 403) during PutObject operation"), StorageError),
        (OSError("google::cloud::Status(PERMISSION_DENIED: Permanent error InsertObjectMedia: 403)"), StorageError),
        (FileNotFoundError(errno.ENOENT, "No such file"), StorageError),
    ],
)
def test_object_store_that_is_busy_is_tried_again(problem: OSError, becomes: type[BatchmergeError]) -> None:
    with pytest.raises(becomes), catalog_errors("n.t"):
        raise problem


# ---- Spark ----------------------------------------------------------------------------------------------------------


class Lost(grpc.RpcError):
    def __str__(self) -> str:
        return "failed to connect to all addresses"


@pytest.mark.parametrize(
    ("raised", "becomes"),
    [
        pytest.param(SparkException("[OPERATION_CANCELED] x"), Interrupted, id="a newer run"),
        pytest.param(UnknownException("Cannot commit: stale"), CommitFailed, id="lost commit"),
        pytest.param(UnknownException("Found conflicting files that"), CommitFailed, id="conflict"),
        pytest.param(
            UnknownException(f"ValidationException: Cannot add {_LATE}"), CommitFailed, id="lost sequence number"
        ),
        pytest.param(
            AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] The table or view `a`.`branch_attempt--x` cannot be found."),
            CommitFailed,
            id="swept",
        ),
        pytest.param(IllegalArgumentException("Cannot find ref attempt--p--main--x"), CommitFailed, id="swept later"),
        pytest.param(
            UnknownException("ValidationException: Table column names conflict with names reserved"),
            TransientError,
            id="another validation",
        ),
        pytest.param(SparkException("[NOT_NULL_ASSERT_VIOLATION] NULL value"), SchemaRefused, id="null in a column"),
        pytest.param(SparkException("java.io.IOException: No space left on device"), StorageError, id="full disk"),
        pytest.param(SparkException("Mkdirs failed to create file:/x"), StorageError, id="no folder"),
        pytest.param(SparkException("Destination exists and is not a directory: /x"), StorageError, id="a file there"),
        pytest.param(SparkException("org.sqlite: [SQLITE_BUSY] database is locked"), Unavailable, id="locked"),
        pytest.param(SparkException("Job aborted due to stage failure"), TransientError, id="a job failed"),
        pytest.param(AnalysisException("[FIELD_NOT_FOUND] No such struct field"), TerminalError, id="our SQL"),
        pytest.param(
            AnalysisException("[INCOMPATIBLE_DATA_FOR_TABLE] `t`.`branch_attempt--x`"), TerminalError, id="our columns"
        ),
        pytest.param(LocalAnalysisException("no such column"), TerminalError, id="in process"),
        pytest.param(SparkConnectGrpcException("<_InactiveRpcError>"), Unavailable, id="no server"),
        pytest.param(Lost(), Unavailable, id="connection"),
        pytest.param(RetriesExceeded(errorClass="RETRIES_EXCEEDED", messageParameters={}), Unavailable, id="gave up"),
    ],
)
def test_spark_errors_become_ours(raised: Exception, becomes: type[BatchmergeError]) -> None:
    with pytest.raises(becomes) as caught, spark_errors("n.t"):
        raise raised
    assert type(caught.value) is becomes
    assert caught.value.where == "n.t"


_S3 = "(software.amazon.awssdk.services.s3.model.S3Exception)"
_NOT_AUTHORIZED = "(org.apache.iceberg.exceptions.NotAuthorizedException) Not authorized: Authorization: Bearer secret"


@pytest.mark.parametrize(
    ("raised", "becomes"),
    [
        (UnknownException(_NOT_AUTHORIZED), ConfigurationError),
        (UnknownException("ForbiddenException: Forbidden: secret"), ConfigurationError),
        (UnknownException(f"{_S3} The key secret does not exist. (Service: S3, Status Code: 403)"), ConfigurationError),
        (SparkException("Job aborted due to stage failure: AccessDenied secret"), ConfigurationError),
        (SparkException("com.azure.BlobStorageException: Status code 403, secret"), ConfigurationError),
        (SparkException("HttpResponseException: 401 Unauthorized secret"), ConfigurationError),
        (
            SparkException("UncheckedSQLException: secret\nFATAL: password authentication failed for user"),
            ConfigurationError,
        ),
        (UnknownException(f"{_S3} The provided token has expired. (Service: S3, Status Code: 400)"), Unavailable),
        (SparkException("ExpiredToken: secret (Service: S3, Status Code: 403)"), Unavailable),
        (SparkException("java.nio.file.AccessDeniedException: /w"), TransientError),  # a local file
        (SparkException("Cannot commit: Status Code: 404"), CommitFailed),
    ],
)
def test_what_refuses_spark_is_named_and_not_repeated(raised: Exception, becomes: type[BatchmergeError]) -> None:
    with pytest.raises(becomes) as caught, spark_errors("n.t"):
        raise raised
    assert type(caught.value) is becomes
    assert ("`spark_properties`" in caught.value.remedy) is (becomes in (ConfigurationError, Unavailable))
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_a_session_that_ends_leaves_the_others_their_threads() -> None:
    threads = ExecutePlanResponseReattachableIterator._get_or_create_release_thread_pool()
    ExecutePlanResponseReattachableIterator.shutdown()
    assert threads.submit(int).result() == 0


def test_message_of_spark_is_its_first_line_only() -> None:
    with pytest.raises(TerminalError) as caught, spark_errors("n.t"):
        raise AnalysisException("what is wrong\n\nJVM stacktrace:\norg.apache.spark.Thing\n\tat a.b(C.scala:1)")
    assert "what is wrong" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "stacktrace" not in str(caught.value)


def test_exception_of_a_python_worker_is_reported_by_its_kind_without_values() -> None:
    stack = "Traceback (most recent call last):\n  File \"x.py\", line 1\nKeyError: 'secret'\n"
    with pytest.raises(TerminalError, match="KeyError in a Python worker") as caught, spark_errors("n.t"):
        raise PythonException(f"An exception was thrown from the Python worker. Please see below.\n{stack}")
    assert "secret" not in str(caught.value)


def test_workers_without_our_modules_are_reported_by_what_they_lack() -> None:
    """No later try goes better. As `SparkException` says it where a task could not be unpickled."""
    stack = "  File \"serializers.py\", line 1, in loads\nModuleNotFoundError: No module named 'jobs.landing'\n"
    lost = "Job aborted due to stage failure: Lost task 0.3 in stage 2.0 (TID 9): org.apache.spark.api.python."
    lacks = r"the Python of Spark's workers has no module jobs\.landing"
    with pytest.raises(ConfigurationError, match=lacks) as caught, spark_errors("n.t"):
        raise SparkException(f"{lost}PythonException: Traceback (most recent call last):\n{stack}")
    assert "the same version of Batchmerge" in caught.value.remedy


@pytest.mark.parametrize("errors_of", [spark_errors, catalog_errors, bigquery_errors])
def test_our_own_errors_pass_through(errors_of: Callable[[str], AbstractContextManager[None]]) -> None:
    own = CommitFailed("x")
    with pytest.raises(CommitFailed) as caught, errors_of("n.t"):
        raise own
    assert caught.value is own


# ---- Kafka ----------------------------------------------------------------------------------------------------------


def test_moving_leaders_are_waited_for() -> None:
    answers = [KafkaError.LEADER_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH]

    def ask() -> str:
        if answers:
            raise KafkaException(KafkaError(answers.pop(0)))
        return "done"

    assert settled(ask, 60) == "done"


def test_other_answers_are_final() -> None:
    def ask() -> str:
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    with pytest.raises(KafkaException):
        settled(ask, 60)
