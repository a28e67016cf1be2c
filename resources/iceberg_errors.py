"""What pyiceberg, the catalog's database and the warehouse's file system raise, as our errors."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pydantic
import sqlalchemy.exc
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NotInstalledError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
    ValidationError,
)

from resources.errors import CommitFailed, CommitStateUnknown, ConfigurationError, StorageError, Unavailable

# What pyiceberg and REST servers say if another commit has got the sequence number first. They check it after the
# requirements, and do not raise it as a failed commit (servers without the fix of apache/iceberg#15001 answer 400).
_SEQUENCE = "older than last sequence number"
# What our error then says.
_TAKEN = "another commit took this one's sequence number"
_LATER = (ServiceUnavailableError, ServerError, TooManyRequestsError)
# What pyiceberg raises if metadata has something that it does not know: of its own, and where a REST server sends it.
UNREADABLE = (ValidationError, pydantic.ValidationError)
# What PostgreSQL and MySQL say of a user, a password or a host that may not connect.
_REFUSED = re.compile(
    r"password authentication failed|no pg_hba\.conf entry|access denied|role .* does not exist", re.IGNORECASE
)


@contextmanager
def catalog_errors(where: str) -> Iterator[None]:
    """Turns what pyiceberg, SQLAlchemy and the file system raise into our error tree."""
    try:
        yield
    except CommitFailedException as problem:
        raise CommitFailed(str(problem), where=where) from problem
    except CommitStateUnknownException as problem:
        raise CommitStateUnknown(str(problem), where=where) from problem
    except UNREADABLE as problem:
        raise _unreadable(problem, where) from None
    except ValueError as problem:
        known = _of_value(problem, where)
        if known is None:
            raise
        raise known from None
    except sqlalchemy.exc.SQLAlchemyError as problem:
        raise _database_error(problem, where) from None
    except (NotInstalledError, ModuleNotFoundError) as problem:
        missing = getattr(problem, "name", None) or "the catalog's client"
        raise ConfigurationError(
            f"a library is missing: {missing}",
            where=where,
            remedy="install it, or name an installed driver in `uri` of the connection (postgresql+psycopg2://…)",
        ) from None
    except (OSError, *_LATER) as problem:
        if _is_of_tls(problem):
            raise ConfigurationError(
                "the catalog's certificate is not trusted, or it refuses the client's, or a TLS file cannot be read",
                where=where,
                remedy="name the certificate authority's file in `ca_file` of its connection (REQUESTS_CA_BUNDLE, "
                "which comes first), a client certificate in `certificate_file` and `key_file` if the catalog wants "
                "one, and the host in `uri` as the certificate has it",
            ) from None
        if isinstance(problem, OSError) and not _is_of_requests(problem):
            raise storage_error(problem, where) from problem
        raise Unavailable(
            f"the catalog does not answer ({type(problem).__name__})", where=where, remedy="check its address"
        ) from None
    except (UnauthorizedError, ForbiddenError, OAuthError, AuthorizationExpiredError) as problem:
        raise ConfigurationError(
            f"the catalog refuses access ({type(problem).__name__})",
            where=where,
            remedy="correct `credential` or `token` of its connection (or its `properties`), or the user's rights",
        ) from None
    except RESTError as problem:
        raise _refused(problem, where) from None


def _unreadable(problem: Exception, where: str) -> ConfigurationError:
    """Our error for metadata that pyiceberg cannot read: the places in it, without their values."""
    invalid = problem if isinstance(problem, pydantic.ValidationError) else problem.__cause__
    places = list[str]()
    if isinstance(invalid, pydantic.ValidationError):
        places = [".".join(map(str, one["loc"])) for one in invalid.errors(include_url=False, include_input=False)]
    named = ", ".join(list(dict.fromkeys(places))[:3]) or str(problem)
    return ConfigurationError(
        f"the table's metadata has something that pyiceberg cannot read: {named}",
        where=where,
        remedy="undo what another engine has changed there, as the type of a column or the format version, or use "
        "another table",
    )


def _of_value(problem: ValueError, where: str) -> CommitFailed | ConfigurationError | None:
    """Our error without the problem's text, which may quote the address or a header; None if it is another problem."""
    if _SEQUENCE in str(problem):
        return CommitFailed(_TAKEN, where=where)
    if not _cannot_be_sent(problem):
        return None
    return ConfigurationError(
        f"the request to the catalog cannot be sent ({type(problem).__name__})",
        where=where,
        remedy="correct `uri`, `token` or the headers in `properties` of its connection: an address begins with "
        "http:// or https://, and headers have no line breaks and no characters outside of Latin-1",
    )


def _database_error(problem: sqlalchemy.exc.SQLAlchemyError, where: str) -> ConfigurationError | Unavailable:
    """Our error for one of the catalog's database: of its driver's text alone, since the exception's own repeats the
    statement and its parameters."""
    text = getattr(problem, "orig", None) or type(problem).__name__
    if _REFUSED.search(str(text)):
        return ConfigurationError(
            f"the catalog's database refuses access: {text}",
            where=where,
            remedy="correct user and password in `uri` of the connection, or the user's rights",
        )
    # Drivers report a connection that broke as other classes than OperationalError, too.
    broken = getattr(problem, "connection_invalidated", False)
    if broken or isinstance(problem, sqlalchemy.exc.OperationalError | sqlalchemy.exc.TimeoutError):
        return Unavailable(
            f"the catalog's database does not answer: {text}",
            where=where,
            remedy="check that it is there, writable and not locked by another process",
        )
    return ConfigurationError(
        f"the catalog's database cannot be used: {text}",
        where=where,
        remedy="check `uri`, and restore the database from a copy if it is damaged",
    )


def _refused(problem: RESTError, where: str) -> CommitFailed | ConfigurationError:
    """Our error without the server's text, which may repeat what the server was sent."""
    if _SEQUENCE in str(problem):
        return CommitFailed(_TAKEN, where=where)
    return ConfigurationError(
        f"the catalog refuses the request ({type(problem).__name__})",
        where=where,
        remedy="check `uri` and `warehouse` of its connection, and the catalog's log",
    )


def _cannot_be_sent(problem: ValueError) -> bool:
    """Whether `requests` or http.client refuses the address or a header."""
    return _is_of_requests(problem) or isinstance(problem, UnicodeEncodeError) or "Invalid header" in str(problem)


def _is_of_requests(problem: Exception, kind: str = "RequestException") -> bool:
    """Whether `requests` has raised it: then it is imported already. A catalog in a database never needs it."""
    requests = sys.modules.get("requests")
    return requests is not None and isinstance(problem, getattr(requests.exceptions, kind))


def _is_of_tls(problem: Exception) -> bool:
    """Whether a certificate is refused, or `requests` finds no file of one, which it says by a plain OSError."""
    missing = "Could not find" in str(problem) and "TLS" in str(problem)
    return missing or _is_of_requests(problem, "SSLError")


# Errors of object stores and networks that may pass, after the clients' own retries: those of AWS (in Arrow), of Google
# and of fsspec.
_BUSY = re.compile(
    r"HTTP status (429|5\d\d)|AWS Error (SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|THROTTLING|REQUEST_TIMEOUT|"
    r"NETWORK_CONNECTION)|google::cloud::Status\((UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|INTERNAL|ABORTED):|"
    r"reduce your request rate"
)
# Errors of expired credentials, which a catalog or the connection has given. S3 answers a HEAD request without a text.
_ENDED = re.compile(r"ExpiredToken|token has expired|HTTP status 400\) during HeadObject.*No response body")
_DENIED = re.compile(
    r"HTTP status 40[13]\b|AWS Error (ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH)|"
    r"google::cloud::Status\((PERMISSION_DENIED|UNAUTHENTICATED):"
)
_NETWORK = {
    *(errno.EBUSY, errno.EAGAIN, errno.ETIMEDOUT, errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE),
    *(errno.EHOSTUNREACH, errno.ENETUNREACH),
}


def storage_error(problem: OSError, where: str) -> StorageError | Unavailable:
    """Our error for a failed read or write of the warehouse: it may pass, or somebody has to correct it."""
    if _ENDED.search(str(problem)):
        return Unavailable(
            "the object store's credentials have expired",
            where=where,
            remedy="run again if the catalog gives them, for longer if it happens again; otherwise renew those in "
            "`properties` and `spark_properties` of the catalog's connection",
        )
    if _DENIED.search(str(problem)):
        return StorageError(
            "the object store refuses access",
            where=where,
            remedy="correct the store's credentials in `properties` and `spark_properties` of the catalog's connection "
            "(as `s3.access-key-id` and `s3.secret-access-key`), or their rights on `warehouse`",
        )
    if problem.errno in _NETWORK or _BUSY.search(str(problem)):
        return Unavailable(
            f"the object store does not answer as it should: {problem.strerror or problem}",
            where=where,
            remedy="run again; if it happens again, check the store, the network, and its limits of requests",
        )
    remedy = {
        errno.ENOSPC: "free space on the warehouse's disk",
        errno.EDQUOT: "raise the quota of the warehouse",
        errno.EACCES: "give this user write permission on the warehouse",
        errno.EPERM: "give this user write permission on the warehouse",
        errno.EROFS: "mount the warehouse read-write",
    }.get(problem.errno or 0, "check the warehouse's path and permissions")
    return StorageError(f"the warehouse cannot be used: {problem.strerror or problem}", where=where, remedy=remedy)
