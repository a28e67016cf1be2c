"""ClickHouse's error codes as our errors: what is tried again, what stops, and never a value or a secret."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from resources.carried_errors import CarriedError, carried_by, carrying_errors
from resources.clickhouse_errors import LEASE_LOST, RETRIABLE_CODES, clickhouse_errors, retried, translated
from resources.errors import (
    BadRecords,
    BatchmergeError,
    CommitFailed,
    CommitStateUnknown,
    ConfigurationError,
    Interrupted,
    SchemaRefused,
    StorageError,
    TerminalError,
    TimeLimitReached,
    Unavailable,
)


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        *[(code, "try later", Unavailable) for code in sorted(RETRIABLE_CODES)],
        (None, "Connection refused", Unavailable),
        (341, "Mutation is not finished because a replica is inactive (UNFINISHED)", Unavailable),
        (225, "No ZooKeeper session (NO_ZOOKEEPER)", Unavailable),
        (236, "Server is shutting down (ABORTED)", Unavailable),
        (201, "Quota for user `u` for 3600s has been exceeded: queries = 4/3 (QUOTA_EXCEEDED)", Unavailable),
        (745, "CPU is overloaded (SERVER_OVERLOADED)", Unavailable),
        (999, "Coordination::Exception: Node exists (KEEPER_EXCEPTION)", CommitFailed),
        (999, "Coordination::Exception: Bad version (KEEPER_EXCEPTION)", CommitFailed),
        (999, "Coordination::Exception: Session expired (KEEPER_EXCEPTION)", Unavailable),
        (395, f"Code: 395. DB::Exception: {LEASE_LOST}: while executing 'FUNCTION throwIf(...)'", Interrupted),
        (395, f"Code: 395. DB::Exception: no: while 'FUNCTION and(throwIf(…, '{LEASE_LOST}'", TerminalError),
        (395, "something else", TerminalError),
        (394, "Query was cancelled", Interrupted),
        (243, "Cannot reserve 1.00 MiB (NOT_ENOUGH_SPACE)", StorageError),
        (452, "something else (SETTING_CONSTRAINT_VIOLATION)", ConfigurationError),
        (516, "Authentication failed (AUTHENTICATION_FAILED)", ConfigurationError),
        (497, "Not enough privileges (ACCESS_DENIED)", ConfigurationError),
        (252, "Too many partitions for single INSERT block (TOO_MANY_PARTS)", ConfigurationError),
        (62, "Syntax error (SYNTAX_ERROR)", TerminalError),
    ],
)
def test_codes(code: int | None, message: str, kind: type[BatchmergeError]) -> None:
    found = translated(code, message, "clickhouse prod (h:1)")
    assert type(found) is kind
    assert found.where == "clickhouse prod (h:1)"


@pytest.mark.parametrize(
    ("message", "settings"),
    [
        ("SSLError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] self-signed')", ("ca_file", "endpoints")),
        ("SSLError(1, '[SSL: WRONG_VERSION_NUMBER] wrong version number')", ("secure", "endpoints")),
        ("SSLError(1, '[SSL: RECORD_LAYER_FAILURE] record layer failure')", ("secure", "endpoints")),
        ("HTTP driver received HTTP status 401, server response: secret", ("username", "password")),
        ("HTTP driver received HTTP status 407, server response: secret", ("username", "password")),
    ],
)
def test_mistakes_of_tls_and_refusals_of_a_proxy_are_not_tried_again(message: str, settings: tuple[str, ...]) -> None:
    found = translated(None, message, "clickhouse prod (h:1)")
    assert type(found) is ConfigurationError
    assert all(f"`{setting}`" in found.remedy for setting in settings)
    assert "secret" not in str(found)


@pytest.mark.parametrize(("code", "settings"), [(516, ("username", "password")), (497, ("username", "state_table"))])
def test_refused_access_names_the_settings(code: int, settings: tuple[str, ...]) -> None:
    found = translated(code, "refused (ACCESS_DENIED)", "clickhouse prod (h:1)")
    assert all(f"`{setting}`" in found.remedy for setting in settings)


@pytest.mark.parametrize(
    ("named", "missing"),
    [
        ("TABLE ENGINE ON ReplacingMergeTree.", "TABLE ENGINE ON ReplacingMergeTree;"),
        ("INSERT(id, name) ON shop.orders. (ACCESS_DENIED)", "INSERT ON shop.orders;"),
        ("SELECT(a) ON shop.`odd name`", "the missing right;"),
    ],
)
def test_missing_grant_is_named(named: str, missing: str) -> None:
    message = f"Not enough privileges. To execute this query, it's necessary to have the grant {named}"
    assert f"(`username` of the connection) {missing}" in translated(497, message, "here").remedy


@pytest.mark.parametrize(
    ("code", "message"),
    [
        # The client looks at the settings itself, and sends nothing.
        (None, "Setting max_execution_time is readonly"),
        (452, "Setting max_execution_time should not be changed. (SETTING_CONSTRAINT_VIOLATION)"),
        (452, "Setting max_execution_time shouldn't be greater than 3. (SETTING_CONSTRAINT_VIOLATION)"),
        (164, "Cannot modify 'max_execution_time' setting in readonly mode. (READONLY)"),
    ],
)
def test_settings_that_the_profile_forbids_are_named(code: int | None, message: str) -> None:
    found = translated(code, message, "here")
    assert type(found) is ConfigurationError
    assert "`max_execution_time`" in found.what
    assert "profile" in found.remedy


def test_an_error_names_the_missing_permission_of_a_user_who_may_only_read() -> None:
    found = translated(164, "u2: Cannot execute query in readonly mode. (READONLY)", "here")
    assert type(found) is ConfigurationError
    assert "`readonly`" in found.remedy


def test_messages_hold_no_values() -> None:
    found = translated(6, "Cannot parse string 'hunter2' as UInt8: secret=hunter2 (CANNOT_PARSE_TEXT)", "here")
    assert "hunter2" not in str(found)
    assert "CANNOT_PARSE_TEXT" in str(found)
    assert found.facts["code"] == 6


CARRIED = [
    Interrupted,
    CommitFailed,
    CommitStateUnknown,
    Unavailable,
    TimeLimitReached,
    BadRecords,
    ConfigurationError,
    SchemaRefused,
    TerminalError,
]


@pytest.mark.parametrize("kind", CARRIED)
def test_errors_survive_the_way_out_of_a_task(kind: type[BatchmergeError]) -> None:
    with pytest.raises(CarriedError) as caught, carrying_errors():
        raise kind("what", where="where", remedy="how")
    found = carried_by(f"CarriedError: {caught.value}")
    assert found is not None
    assert type(found) is kind
    assert (found.what, found.where, found.remedy) == ("what", "where", "how")


@pytest.mark.parametrize(
    ("outcomes", "left"),
    [
        ([Unavailable("not yet"), Unavailable("not yet"), None], 0),
        ([Interrupted("taken over"), None], 1),
        ([Unavailable("gone")] * 4, 1),
    ],
    ids=["comes right", "final", "stays away"],
)
def test_only_what_may_come_right_is_tried_again(outcomes: list[BatchmergeError | None], left: int) -> None:
    coming = list(outcomes)

    def work() -> str:
        if outcome := coming.pop(0):
            raise outcome
        return "done"

    last = outcomes[-left - 1]
    with pytest.raises(type(last)) if last else nullcontext():
        assert retried(work, tries=3, first_pause=0.001) == "done"
    assert len(coming) == left


@pytest.mark.parametrize(("code", "waits"), [(None, True), (159, False), (999, False)])
def test_only_a_server_that_has_not_answered_was_silent(code: int | None, waits: bool) -> None:
    """Not one whose answer is that a limit of the user's profile was met (159, TIMEOUT_EXCEEDED)."""
    with pytest.raises(Unavailable) as caught, clickhouse_errors("here"):
        raise DatabaseError("not all hosts", code=code)
    assert ("waited" in caught.value.facts) is waits


@pytest.mark.parametrize(("each", "tries"), [(0.1, 6), (30.0, 2), (300.0, 1)])
def test_silent_server_is_not_asked_again_for_ever(each: float, tries: int) -> None:
    asked: list[int] = []

    def work() -> None:
        asked.append(1)
        raise Unavailable("no answer", waited=each)

    with pytest.raises(Unavailable) as caught:
        retried(work, first_pause=0)
    assert len(asked) == tries
    assert caught.value.facts["waited"] == pytest.approx(each * tries)
