"""Work for many members at a time."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from jobs.side_by_side import OneSession, Outcome, side_by_side
from jobs.spec.members import Member
from resources.errors import Interrupted
from tests.kit import specs


class Session:
    """What a session does when a run is cancelled."""

    interrupted = 0

    def interruptAll(self) -> None:
        self.interrupted += 1


def test_nothing_begins_in_the_session_of_a_run_that_was_cancelled() -> None:
    spark = Session()
    session = OneSession(lambda: cast(SparkSession, spark))
    members = [Member("t", "p__t", specs.spec())]

    def cancelled(member: Member) -> Outcome[Any]:
        assert member in members
        assert session["landing"] is cast(SparkSession, spark)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(side_by_side(members, 1, cancelled, [session]))

    assert spark.interrupted == 1
    with pytest.raises(Interrupted):
        session["landing"]
