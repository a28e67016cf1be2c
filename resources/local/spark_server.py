"""A warm Spark Connect server in local mode, with Iceberg and SQLite libraries.

Catalogs are settings of a session, not of the server. SparkSubmit is started directly, because Spark's launcher script
demands a Java module that the wheel's Java does not have.
"""

from __future__ import annotations

import os
import re
import sys
import uuid
from pathlib import Path
from typing import Any, ClassVar

from jobs import spark_daemon
from resources.errors import ConfigurationError
from resources.local.jars import Bundle, classpath, fetch, pyspark_folder
from resources.local.java import find_java
from resources.local.jvm import jvm
from resources.local.lake import create_lake, lake_connection, store_of
from resources.local.ports import accepts
from resources.local.service import HOST, Command, Say, Service, Site
from resources.own_code import OWN_CODE, STARTED_BY

PROGRAM = Path(__file__).parent.parent / "spark_connect" / "server.py"
# Settings that PROGRAM needs; and Python workers that are forked with our modules loaded.
SHARED_SESSIONS = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "false",
    "spark.python.daemon.module": spark_daemon.__name__,
}

LIBRARIES = Bundle(
    "spark",
    (
        ("org.apache.iceberg", "iceberg-spark-runtime-4.0_2.13", "1.11.0"),
        ("org.xerial", "sqlite-jdbc", "3.46.1.0"),
    ),
    without=(("org.slf4j", ".*"),),  # among PySpark's own jars
)

# Spark's JavaModuleOptions without jdk.incubator.vector.
_OPENED = (
    *("java.base/java." + p for p in ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util")),
    *("java.base/java.util." + p for p in ("concurrent", "concurrent.atomic")),
    *("java.base/" + p for p in ("jdk.internal.ref", "sun.nio.ch", "sun.nio.cs", "sun.security.action")),
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)


class SparkServer(Service):
    name: ClassVar[str] = "spark"
    port_names: ClassVar[tuple[str, ...]] = ("connect",)

    def prepare(self, site: Site, say: Say) -> Command:
        java = find_java(say)
        store = store_of(site.lake)
        jars = [fetch(bundle, java, say) for bundle in [LIBRARIES, *([store.libraries] if store else [])]]
        folder = site.folder(self.name)
        create_lake(site.home)
        settings = _settings_file(site)
        settings.write_text("".join(f"{key} {value}\n" for key, value in self._settings(site).items()))
        options = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
        options += ["-Djdk.reflect.useDirectMethodHandle=false", "-Dio.netty.tryReflectionSetAccessible=true"]
        # Not in the file, which would override BATCHMERGE_JAVA_OPTIONS.
        options += [f"-Dspark.sql.shuffle.partitions={2 * (os.cpu_count() or 1)}"]
        argv = jvm(java, folder, _memory(), classpath(pyspark_folder() / "jars", *jars), options)
        argv += ["org.apache.spark.deploy.SparkSubmit", "--properties-file", str(settings), str(PROGRAM)]
        return Command(argv, {"SPARK_HOME": str(pyspark_folder()), "PYSPARK_PYTHON": sys.executable})

    def _settings(self, site: Site) -> dict[str, str]:
        folder = site.folder(self.name)
        return {
            "spark.master": "local[*]",
            "spark.app.name": "batchmerge",
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.ui.enabled": "false",
            "spark.local.dir": str(folder / "tmp"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            **SHARED_SESSIONS,
            STARTED_BY: OWN_CODE,
            "spark.scheduler.mode": "FAIR",  # a large merge does not hold up another pipeline's small batch
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(site.port(self.name, "connect")),
            "spark.connect.grpc.maxInboundMessageSize": str(512 * 1024 * 1024),
            # Pipelines come back to their session every few minutes or hours.
            "spark.connect.session.manager.defaultSessionTimeout": "6h",
        }

    def ready(self, site: Site) -> bool:
        return accepts(site.port(self.name, "connect")) and says_version(site.address(self.name, "connect"))

    def is_outdated(self, site: Site) -> bool:
        return f"{STARTED_BY} {OWN_CODE}\n" not in _settings_file(site).read_text()

    def connections(self, site: Site) -> dict[str, dict[str, Any]]:
        remote = f"sc://{site.address(self.name, 'connect')}"
        return {"spark": {"kind": "spark", "remote": remote}, "lake": lake_connection(site)}


def _settings_file(site: Site) -> Path:
    return site.folder(SparkServer.name) / "spark.properties"


def says_version(address: str) -> bool:
    """Whether the Connect server at ``host:port`` says its version; it listens before it has a session."""
    import grpc
    from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

    question = base_pb2.AnalyzePlanRequest(
        session_id=str(uuid.uuid4()),
        user_context=base_pb2.UserContext(user_id="batchmerge-status"),
        spark_version=base_pb2.AnalyzePlanRequest.SparkVersion(),
    )
    with grpc.insecure_channel(address) as channel:
        server = base_pb2_grpc.SparkConnectServiceStub(channel)
        try:
            answer = server.AnalyzePlan(question, timeout=10)
            # A session of its own for each look would stay on the server for hours.
            server.ReleaseSession(
                base_pb2.ReleaseSessionRequest(session_id=question.session_id, user_context=question.user_context),
                timeout=10,
            )
        except grpc.RpcError:
            return False
    return bool(answer.spark_version.version)


def _memory() -> str:
    """Java heap of the server.

    Raises:
        ConfigurationError: BATCHMERGE_SPARK_MEMORY is not a number with m or g.
    """
    memory = os.environ.get("BATCHMERGE_SPARK_MEMORY", "2g")
    if not re.fullmatch(r"[1-9]\d*[mgMG]", memory):
        raise ConfigurationError(
            f"{memory!r} is no amount of memory", where="BATCHMERGE_SPARK_MEMORY", remedy="say for example 2g or 1500m"
        )
    return memory
