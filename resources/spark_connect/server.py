"""The program of a Spark Connect server, for spark-submit: its sessions share Python workers and loaded classes.

Spark's own main class of the server isolates the artifacts (files and jars) of each session, and takes no setting
against it. So each session starts a Python daemon that stays for good, and loads every class again: its first task
that runs Python takes 2.4 s, and 0.2 s here (`spark.sql.artifact.isolation.enabled=false`; ours add no artifacts).
"""

import time

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_LOOK_EVERY = 5.0


def main() -> None:
    """Starts Spark, whose SparkConnectPlugin answers clients, and ends when Spark has stopped, or is gone."""
    context = SparkSession.builder.getOrCreate().sparkContext
    try:
        while not context._jsc.sc().isStopped():
            time.sleep(_LOOK_EVERY)
    except (Py4JError, OSError):  # Spark's process was killed
        pass


main()
