"""Spark through Spark Connect: one session per pipeline and role, against a warm server or in this process.

A server keeps an operation running when its client dies. So a session's id follows from pipeline and role: whoever
comes after a dead run attaches to the same session and interrupts what is left in it (`docs/production.md`).
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import socket
import sys
import time
import uuid
from collections.abc import Mapping
from functools import cache
from threading import Lock
from typing import Any

from pyspark.errors.exceptions.connect import (
    SparkConnectException,
)
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.proto import ConfigRequest
from pyspark.sql.connect.session import SparkSession as RemoteSession

from resources.connections import SparkConnection
from resources.errors import (
    Unavailable,
)
from resources.own_code import OWN_CODE, STARTED_BY, is_other_code, other_code_in_server
from resources.spark_address import SparkAddress
from resources.spark_errors import spark_errors

# These loggers of PySpark log values of records; our errors name Spark's error class instead. By a filter, since
# `logging.config.dictConfig` (which Dagster calls) enables all loggers again.
for _logger in ("DataFrameQueryContextLogger", "SQLQueryContextLogger", "pyspark.sql.connect.logging"):
    PySparkLogger.getLogger(_logger).addFilter(lambda _record: False)

# Otherwise a session that ends, also by garbage collection, would close the threads that all sessions share.
ExecutePlanResponseReattachableIterator.shutdown = lambda: None  # type: ignore[method-assign]

_NAMESPACE = uuid.UUID("6c1f0f0e-5f0b-4a3e-9a51-6b61746d7267")
_USER = "batchmerge"
_CATALOGS = "spark.sql.catalog."
# Ids of a role's sessions to try, at most.
_MOST_CLOSED = 1000
# Seconds that a server has to accept a connection.
_REACHABLE_SECONDS = 10
_LOG = logging.getLogger("batchmerge")
_STARTING = Lock()
# Tries of a request to a server that does not answer: with the pauses between them about a minute.
_TRIES = 15
# Longest pause in seconds between two tries.
_LONGEST_WAIT = 5
# Executors to plan for where a cluster may grow without a bound.
_UNBOUNDED = "100"
# Seconds between two warnings that the server does not answer.
_SAY_EVERY = 20

# Names, dates and times must not depend on the machine of the server or the client.
_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # Required columns are checked by the decoder, record by record; Spark would only see that they could be null.
    "spark.sql.iceberg.check-nullability": "false",
    # The server caches resolved plans by their id, and each process counts ids from 0: the next run in the session
    # would get the views and the states of tables of the run before.
    "spark.connect.session.planCache.enabled": "false",
}


def open_session(connection: SparkConnection, role: str, settings: Mapping[str, str]) -> SparkSession:
    """A session for this role (`<pipeline>/landing`, `<pipeline>/<table>`), with older operations of it interrupted. It
    is a new one where the settings of a catalog are not those that the older one had. A catalog that it has made from
    these settings is left alone.

    Its jobs are in a pool of the role's own: where `spark.scheduler.mode` is FAIR, each role has the same share of the
    cluster, however many jobs it has. So no table holds up another one, of its own pipeline either.

    Raises:
        Unavailable: no Spark answers.
        ConfigurationError: other code than that of this process has started the local Spark server.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    wanted = {**_ALWAYS, "spark.scheduler.pool": role, **connection.settings, **settings}
    digests = _digests(wanted)
    with spark_errors(role):
        address = SparkAddress.parse(connection.remote) if connection.remote else _local(connection.master)
        spark = _attach(address, role)
        there = spark.conf.getAll
        if is_other_code(there.get(STARTED_BY, OWN_CODE)):
            raise other_code_in_server(address.shown)
        # Spark makes a catalog once in a session, which would keep old credentials as long as runs come.
        if any(there.get(name, digest) != digest for name, digest in digests.items()):
            spark.stop()
            spark = _attach(address, role)
            there = spark.conf.getAll
        catalogs = _catalogs(settings)
        unmade = [catalog for catalog in catalogs if not _is_made(catalog, settings, digests, there)]
        made = tuple(f"{catalog}." for catalog in catalogs if catalog not in unmade)
        # Digests last: one that is there says that its catalog's settings were given.
        given = {name: value for name, value in {**wanted, **digests}.items() if not name.startswith(made)}
        if missing := {name: value for name, value in given.items() if there.get(name) != value}:
            spark.conf._set_all(missing, silent=False)  # type: ignore[attr-defined]  # in one round trip
        for catalog in unmade:
            _make(spark, catalog, settings)
    return spark


def _catalogs(settings: Mapping[str, str]) -> list[str]:
    """The names of settings that name a catalog's class."""
    return [name for name in settings if re.fullmatch(re.escape(_CATALOGS) + r"[^.]+", name)]


def _is_made(catalog: str, settings: Mapping[str, str], digests: Mapping[str, str], there: Mapping[str, str]) -> bool:
    """Whether the session has made this catalog from these settings: it was given them, and they were taken back.

    Their digest alone does not say so: of a catalog that was down it says from which settings it will be made.
    """
    digest = _name_of_digest(catalog.removeprefix(_CATALOGS))
    return there.get(digest) == digests[digest] and not _own(catalog, settings) & there.keys()


def _own(catalog: str, settings: Mapping[str, str]) -> set[str]:
    """The names of a catalog's settings, but not of its class, which has no secret."""
    return {name for name in settings if name.startswith(f"{catalog}.")}


def _make(spark: SparkSession, catalog: str, settings: Mapping[str, str]) -> None:
    """Has Spark make a catalog, and takes its settings back, which Spark reads once: every job carries what its
    session has set, and Spark's event log, which hides nothing of it, would have the secrets.

    A catalog that cannot be made now keeps them until a later run makes it: other tables of the session may not need
    it.
    """
    # It needs nothing of the catalog's tables, and analysing it is enough.
    version = F.call_function(f"`{catalog.removeprefix(_CATALOGS)}`.system.iceberg_version")
    try:
        _ = spark.range(1).select(version).schema
    except SparkConnectException:
        return
    unset = ConfigRequest.Unset(keys=sorted(_own(catalog, settings)))
    spark.client.config(ConfigRequest.Operation(unset=unset))  # type: ignore[operator]  # in one round trip


@cache
def _digest(text: str) -> str:
    """Slow to make, since who sees it in Spark's UI could guess at the secrets in the text (RFC 7914)."""
    return hashlib.scrypt(text.encode(), salt=b"batchmerge", n=1 << 12, r=8, p=1, dklen=16).hex()


def _digests(settings: Mapping[str, str]) -> dict[str, str]:
    """A digest of the settings of each catalog, as settings. Spark gives no value back whose name could be a secret's:
    so the name has a digest of the catalog's."""
    parts: dict[str, list[str]] = {}
    for name, value in sorted(settings.items()):
        if name.startswith(_CATALOGS):
            parts.setdefault(name.removeprefix(_CATALOGS).partition(".")[0], []).append(f"{name}={value}")
    return {_name_of_digest(catalog): _digest("\n".join(lines)) for catalog, lines in parts.items()}


def _name_of_digest(catalog: str) -> str:
    return f"spark.batchmerge.{_digest(catalog)}"


def parallelism(spark: SparkSession) -> int:
    """How many tasks the cluster runs at a time: its cores, or what it may grow to.

    Read from the plan of a range, without a job: Spark would cut it into this many parts. The session may set another
    number (`spark.sql.leafNodeDefaultParallelism`).
    """
    plan = spark.range(1)._explain_string()  # type: ignore[operator]
    found = re.search(r"splits=(?:Some\()?(\d+)", plan)
    return max(int(found[1]) if found else 1, _most_executors(spark) * int(_setting(spark, "spark.executor.cores")))


def _most_executors(spark: SparkSession) -> int:
    if _setting(spark, "spark.dynamicAllocation.enabled", "false") != "true":
        return 0
    return int(_setting(spark, "spark.dynamicAllocation.maxExecutors", _UNBOUNDED))


def _setting(spark: SparkSession, name: str, default: str = "1") -> str:
    return spark.conf.get(name, default) or default


def _attach(address: SparkAddress, role: str) -> SparkSession:
    """The role's session, quiet. Our server opens a closed session (it timed out) again under its id; others never do.
    So the ids of a role are a fixed sequence, and the first that is not closed is the one that an earlier run may
    still be using."""
    _check_reachable(address)
    for turn in range(_MOST_CLOSED):
        session = str(uuid.uuid5(_NAMESPACE, f"{role}#{turn}"))
        try:
            spark: SparkSession = SparkSession.builder.remote(address.of_session(_USER, session)).create()
            spark.client.set_retry_policies([_Patience(address, role)])  # type: ignore[operator]
            spark.interruptAll()
            return spark
        except SparkConnectException as problem:
            if "SESSION_CLOSED" not in str(problem) and "SESSION_CHANGED" not in str(problem):
                raise
    raise Unavailable(
        f"{_MOST_CLOSED} sessions of this role are closed", where=role, remedy="restart the Spark Connect server"
    )


class _Patience(DefaultPolicy):
    """How long to try a server that does not answer: Spark itself would try for ten minutes, silently."""

    def __init__(self, address: SparkAddress, role: str) -> None:
        super().__init__(max_retries=_TRIES, max_backoff=_LONGEST_WAIT * 1000)
        self._about, self._said = f"{role}: Spark at {address.shown}", 0.0

    def can_retry(self, problem: BaseException) -> bool:
        found: bool = super().can_retry(problem)
        if found and time.monotonic() > self._said + _SAY_EVERY:
            self._said = time.monotonic()
            _LOG.warning("%s does not answer; it is tried again for a minute", self._about)
        return found


def _check_reachable(address: SparkAddress) -> None:
    """Raises Unavailable at once if no server listens: the client itself would try for ten minutes."""
    try:
        socket.create_connection((address.host, address.port), timeout=_REACHABLE_SECONDS).close()
    except OSError as problem:
        raise Unavailable(
            f"no Spark Connect server answers: {problem.strerror or problem}",
            where=address.shown,
            remedy="start it (`batchmerge up` for local services), or correct the Spark connection",
        ) from None


def _local(master: str | None) -> SparkAddress:
    """The address of Spark in this process, which is started for the first role.

    Roles may be threads, and each has a session of its own. The port is any that is free: steps may be processes.
    """
    with _STARTING:
        if SparkSession._instantiatedSession is None:
            # An earlier session of this process, or of its parent, has set it; with it no server is started.
            os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
            RemoteSession._start_connect_server(master or "local[*]", {"spark.connect.grpc.binding.port": "0"})
        started: Any = SparkSession._instantiatedSession
    service = getattr(started._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return SparkAddress("localhost", getattr(service, "MODULE$").localPort())
