"""Spark inside the process (`master`): its roles are as apart as those of a server."""

from __future__ import annotations

import os
import subprocess
import sys

_TWO_ROLES = """
from concurrent.futures import ThreadPoolExecutor
from resources.connections import SparkConnection
from resources.spark import open_session

spark = SparkConnection(kind="spark", master="local[1]")
with ThreadPoolExecutor(2) as pool:
    one, two = pool.map(lambda role: open_session(spark, role, {"spark.sql.shuffle.partitions": str(len(role))}),
                        ["p/table", "p/landing"])
one.range(3).createOrReplaceTempView("changes")
print(one.table("changes").count(), two.catalog.tableExists("changes"))
print(*(session.conf.get("spark.sql.shuffle.partitions") for session in (one, two)))
"""


def test_two_roles_have_sessions_of_their_own() -> None:
    """Also where the process that starts it is a client of Spark."""
    quick = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    environment = {**os.environ, **quick, "SPARK_CONNECT_MODE_ENABLED": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _TWO_ROLES], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "3 False\n7 9\n", done.stderr
