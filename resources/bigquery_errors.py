"""BigQuery's errors in our tree: what to try again, what somebody else won, what a person must fix.

5xx, lost connections, rate limits and quotas become `Unavailable`; 412 and a serialization conflict `CommitFailed`; a
missing table `TableReplaced`; refused credentials and permissions, and a project without billing, `ConfigurationError`;
everything else is terminal.
Messages lose what stands in quotes: it may be a record's value. Reasons: the vendor's page "Error messages".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import requests
from google.api_core import exceptions as google_errors
from google.auth import exceptions as auth_errors
from google.cloud import bigquery

from resources.errors import (
    BatchmergeError,
    CommitFailed,
    ConfigurationError,
    TableReplaced,
    TerminalError,
    TransientError,
    Unavailable,
)

_QUOTAS = frozenset({"rateLimitExceeded", "quotaExceeded", "jobRateLimitExceeded", "tableUnavailable"})
_DENIED = frozenset({"", "accessDenied", "forbidden", "insufficientPermissions"})
_LATER = frozenset({"backendError", "internalError", "jobBackendError", "jobInternalError", "badGateway", "timeout"})
# Statuses that say the reason themselves.
_BY_STATUS = {401: "unauthenticated", 404: "notFound", 412: "conditionNotMet", 429: "rateLimitExceeded"}
_CONFLICT = re.compile(
    r"could not serialize|concurrent update|too many DML|failed to commit|conflict on update", re.IGNORECASE
)
_PARTITIONS = re.compile(r"too many partitions", re.IGNORECASE)
NETWORK = (requests.exceptions.RequestException, ConnectionError, TimeoutError, google_errors.RetryError)

_CREDENTIALS = "set `credentials_file` or `credentials_json` of the connection, or application default credentials"
_LIMIT = (
    Unavailable,
    "a BigQuery limit is reached",
    "nothing is lost: the batches stay landed and the next run merges them together; merge less often "
    "(`merge_interval_seconds`) or raise the quota",
)
_GRANT = (
    "grant roles/bigquery.jobUser on the project (`billing_project` if there is one) and roles/bigquery.dataEditor on "
    "the dataset to the account of `credentials_file` or `credentials_json`"
)
_KNOWN: dict[str, tuple[type[BatchmergeError], str, str]] = {
    **dict.fromkeys(_QUOTAS, _LIMIT),
    "conditionNotMet": (CommitFailed, "somebody else changed it at the same time", "try again"),
    "stopped": (TransientError, "the job was cancelled", "run again"),
    "notFound": (
        TableReplaced,
        "something that existed is gone",
        "restore it, or start again with another table",
    ),
    "unauthenticated": (ConfigurationError, "BigQuery refuses the credentials", _CREDENTIALS),
    "accessDenied": (ConfigurationError, "BigQuery denies access", _GRANT),
    "billingNotEnabled": (
        ConfigurationError,
        "the project has no billing, without which BigQuery refuses this",
        "enable billing of the project (`billing_project` if there is one): the sandbox has no statements that change "
        "tables",
    ),
    "blocked": (TerminalError, "BigQuery has blocked such work for now", "ask Google's support why"),
    "tooManyPartitions": (
        TerminalError,
        "the statement changes more partitions than BigQuery allows in one",
        "make another table with `time_partitioning: MONTH` or YEAR, or, where `start` lies far back, without "
        "partitions",
    ),
}


def job_failure(job: bigquery.QueryJob | bigquery.LoadJob) -> BatchmergeError | None:
    """Why a job that is over has failed; None where it did its work."""
    if not job.error_result:
        return None
    reason, message = job.error_result.get("reason", ""), job.error_result.get("message", "")
    return _classified(reason, message, str(job.job_id))


@contextmanager
def bigquery_errors(where: str, denied: str = _GRANT) -> Iterator[None]:
    """Turns the client's exceptions into our error tree.

    Args:
        denied: the remedy where access is denied.
    """
    try:
        yield
    except google_errors.GoogleAPICallError as problem:
        raise _translated(problem, where, denied) from None  # its text may hold a record's value
    except auth_errors.TransportError as problem:
        raise _unavailable(type(problem).__name__, where) from problem
    except auth_errors.GoogleAuthError as problem:
        if _may_pass(problem):
            raise _unavailable(f"no token: {type(problem).__name__}", where) from None
        raise ConfigurationError(
            f"BigQuery: Google refuses the credentials, or finds none ({type(problem).__name__})",
            where=where,
            remedy=_CREDENTIALS,
        ) from None  # its text is the server's answer, which may repeat what it was sent
    except NETWORK as problem:
        raise _unavailable(type(problem).__name__, where) from problem


def _may_pass(problem: auth_errors.GoogleAuthError) -> bool:
    """Whether what gives tokens, Google's endpoint or the machine's metadata server, had no answer: the error of a
    refusal has the answer beside its text."""
    cause = problem.__cause__
    return problem.retryable or (isinstance(cause, auth_errors.TransportError) and len(cause.args) == 1)


def _translated(problem: google_errors.GoogleAPICallError, where: str, denied: str) -> BatchmergeError:
    first = problem.errors[0] if problem.errors else {}
    reason = first.get("reason", "") if isinstance(first, dict) else ""
    message = str(problem.message or "")
    reason = _BY_STATUS.get(problem.code or 0, reason)
    if isinstance(problem, google_errors.ServerError) and reason != "notImplemented":
        reason = "backendError"
    elif isinstance(problem, google_errors.Forbidden) and reason in _DENIED:
        reason = "accessDenied"
    return _classified(reason, message, where, denied)


def _classified(reason: str, message: str, where: str, denied: str = _GRANT) -> BatchmergeError:
    said = without_values(message)
    if _PARTITIONS.search(message):
        reason = "tooManyPartitions"
    if _CONFLICT.search(message):
        reason = "conditionNotMet"
    if reason in _LATER:
        return _unavailable(reason, where)
    kind, what, remedy = _KNOWN.get(reason, (TerminalError, f"BigQuery refused the work ({reason or 'unknown'})", ""))
    return kind(f"{what}: {said}", where=where, remedy=denied if remedy is _GRANT else remedy, reason=reason)


def _unavailable(what: str, where: str) -> Unavailable:
    return Unavailable(
        f"BigQuery does not answer ({what})", where=where, remedy="check the connection; the next run tries again"
    )


_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_AFTER_VALUE = re.compile(r"(value|literal|string):? .*", re.IGNORECASE)


def without_values(message: str) -> str:
    """The first line of a message, without what may be a record's value."""
    first = message.strip().splitlines()[0] if message.strip() else "no reason given"
    first = re.sub(r"^\d{3} [A-Z]+ \S+: ", "", first)
    return _AFTER_VALUE.sub(r"\1 …", _QUOTED.sub("'…'", first))[:300]
