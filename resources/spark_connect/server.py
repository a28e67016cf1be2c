"""The program of a Spark Connect server, for spark-submit: its sessions share Python workers and loaded classes.

Spark's own main class of the server isolates the artifacts (files and jars) of each session, and takes no setting
against it. So each session starts a Python daemon that stays for good, and loads every class again: its first task
that runs Python takes 2.4 s, and 0.2 s here (`spark.sql.artifact.isolation.enabled=false`; ours add no artifacts).
"""

import sys
import time
from collections.abc import Mapping

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_LOOK_EVERY = 5.0
# Seconds without an executor after which the master must have lost this application.
_PATIENCE = 300.0
# So many ended sessions keep their ids. With none a role's session has one id for good; otherwise each that has ended,
# after hours without work, costs every later run of the role a request (`resources/spark.py`).
_ENDED_SESSIONS = "spark.connect.session.manager.closedSessionsTombstonesSize", "0"


def main() -> None:
    """Starts Spark, whose SparkConnectPlugin answers clients; ends when Spark has stopped, is gone or is forgotten."""
    context = SparkSession.builder.config(*_ENDED_SESSIONS).getOrCreate().sparkContext
    is_watched = keeps_executors(dict(context.getConf().getAll()))
    seen: float | None = None
    try:
        while not (spark := context._jsc.sc()).isStopped():
            now = time.monotonic()
            if is_watched and spark.getExecutorIds().size():
                seen = now
            if is_forgotten(seen, now):
                sys.exit("the master has given no executor for minutes; this server ends, to be started again")
            time.sleep(_LOOK_EVERY)
    except (Py4JError, OSError):  # Spark's process was killed
        pass


def keeps_executors(settings: Mapping[str, str]) -> bool:
    """Whether it has the executors of a standalone cluster for as long as it runs, also when they are idle."""
    is_standalone = settings.get("spark.master", "").startswith("spark://")
    return is_standalone and settings.get("spark.dynamicAllocation.enabled") != "true"


def is_forgotten(seen: float | None, now: float) -> bool:
    """Whether the master has lost this application, which would then wait for executors for ever.

    A master that was started again knows no application: it has its workers end the executors, and the application,
    which only sees that the old one is gone, does not register again.

    Args:
        seen: when there last was an executor; None: never, so they may still come.
    """
    return seen is not None and now - seen > _PATIENCE


if __name__ == "__main__":
    main()
