"""The Spark sessions that a pipeline works in, and what it means to interrupt them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from resources.errors import BatchmergeError, Interrupted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sessions(Protocol):
    """Sessions by role: what works at the same time has different roles.

    Interrupting is called from other threads than the work. It opens no session.
    """

    def get(self, role: str, open_: Callable[[], SparkSession]) -> SparkSession:
        """The session of a role; `open_` makes it if there is none yet."""

    def interrupt(self, role: str) -> None:
        """Stops what runs in the session of this role."""

    def interrupt_all(self) -> None:
        """Stops what runs in any session."""


class OwnSessions(Sessions):
    """One session for each role, used by one pipeline alone: interrupting stops only that pipeline's work."""

    def __init__(self) -> None:
        self._sessions, self._opening = dict[str, "SparkSession"](), Lock()

    def get(self, role: str, open_: Callable[[], SparkSession]) -> SparkSession:
        with self._opening:  # parts of a table share its session
            if role not in self._sessions:
                self._sessions[role] = open_()
            return self._sessions[role]

    def interrupt(self, role: str) -> None:
        if session := self._sessions.get(role):
            _stop_work_in(session, role)

    def interrupt_all(self) -> None:
        for role in list(self._sessions):
            self.interrupt(role)


class OneSession(Sessions):
    """One session for every role, lent to one member of a pipeline at a time: interrupting stops that member's work.

    Attributes:
        over: closed for good; asking for it raises Interrupted.
    """

    def __init__(self, open_: Callable[[], SparkSession]) -> None:
        self._open, self._opening, self.over = open_, Lock(), False
        self._session: SparkSession | None = None

    def get(self, role: str, open_: Callable[[], SparkSession] | None = None) -> SparkSession:
        """The session. What opens it knows all that any member needs; `open_` knows only what one of them does."""
        del open_
        with self._opening:
            if self.over:
                raise Interrupted("the run was cancelled", where=role, remedy="run it again")
            if self._session is None:
                self._session = self._open()
            return self._session

    def interrupt(self, role: str) -> None:
        self._stop_work(role)

    def interrupt_all(self) -> None:
        self._stop_work("")

    def close(self) -> None:
        """Stops what runs in it, and gives it to nobody any more: a landing would go on with its next batch, and the
        process could not end before."""
        self.over = True
        with suppress(BatchmergeError):
            self._stop_work("cancelled")

    def forget(self) -> None:
        """Opens another session at the next use: this one may be why work has failed."""
        self._session = None

    def _stop_work(self, where: str) -> None:
        if session := self._session:
            _stop_work_in(session, where)


class SessionOfMany(OneSession):
    """One session that many members work in at the same time: interrupting stops nothing, since that would stop the
    work of all. A member that is given up gets no session for its next step instead
    (`jobs.members.shared_jobs.Slot`)."""

    def interrupt(self, role: str) -> None:
        pass

    def interrupt_all(self) -> None:
        pass


def _stop_work_in(session: SparkSession, where: str) -> None:
    from resources.spark_errors import spark_errors

    with spark_errors(where):
        session.interruptAll()
