"""ClickHouse's errors in our tree: what to try again, what somebody else won, what a person must fix; never with values
or secrets of a statement."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from clickhouse_connect.driver.exceptions import ClickHouseError, Error
from urllib3.exceptions import HTTPError

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
T = TypeVar("T")

# Codes that ClickHouse's own Kafka Connect sink retries (its Utils.java; but not 164, which needs a person), and
# those of a server that is starting, stopping or overloaded, of a quota that is used up, of another ALTER at the same
# time, and of a replica or keeper that does not answer or lags behind.
RETRIABLE_CODES = frozenset(
    {
        *(3, 107, 159, 198, 201, 202, 203, 209, 210, 225, 236, 241, 242, 252, 279, 285, 286, 289, 319, 341, 425, 439),
        *(473, 517, 700, 745, 999),
    }
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
# Seconds without any answer, in all tries.
_SILENT = 60
NEWER_RUN = "nothing to do: the newer run goes on"
_CHECK = "check the address and `secure` in the connections file and that the server runs"

_BROKEN = "run again; the server was stopped, or the statement failed half way (see `SELECT * FROM system.errors`)"

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
    except HTTPError:  # some rows were sent already: there is no code for what comes then
        raise Unavailable("its answer broke off", where=where, remedy=_BROKEN) from None
    except (ClickHouseError, OSError) as problem:
        found = _no_answer(str(problem), where, f"no answer ({type(problem).__name__})")
        found.facts["waited"] = time.monotonic() - began
        raise found from None


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
    elif code == _THROW_IF and f"Exception: {LEASE_LOST}" in message:  # of another throwIf the message may quote ours
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
            # Every server has this table; a query log, and a log with messages, only some have.
            remedy="correct what the whole message says. The server gives it to `SELECT last_error_message FROM "
            f"system.errors WHERE code = {code}`",
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
