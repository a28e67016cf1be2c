"""ZooKeeper out of the jars that PySpark brings: what ClickHouse keeps its KeeperMap tables in."""

from __future__ import annotations

import socket
from typing import ClassVar

from resources.local.jars import classpath, pyspark_folder
from resources.local.java import find_java
from resources.local.jvm import jvm
from resources.local.service import HOST, Command, Say, Service, Site

_CONFIGURATION = """\
tickTime=2000
dataDir={data}
clientPort={client}
clientPortAddress=127.0.0.1
admin.enableServer=false
maxClientCnxns=0
autopurge.snapRetainCount=3
autopurge.purgeInterval=24
"""


class ZooKeeper(Service):
    name: ClassVar[str] = "zookeeper"
    port_names: ClassVar[tuple[str, ...]] = ("client",)

    def prepare(self, site: Site, say: Say) -> Command:
        java = find_java(say)
        folder = site.folder(self.name)
        configuration = folder / "zoo.cfg"
        configuration.write_text(_CONFIGURATION.format(data=folder / "data", client=site.port(self.name, "client")))
        # ZooKeeper keeps its last 500 writes in memory for followers, of which there are none, and takes no smaller
        # number. A write of a thousand topic-partitions has half a megabyte, and takes twice that of memory.
        run = jvm(java, folder, "1g", classpath(pyspark_folder() / "jars"), ["-XX:+UseSerialGC"])
        return Command([*run, "org.apache.zookeeper.server.ZooKeeperServerMain", str(configuration)])

    def ready(self, site: Site) -> bool:
        """Whether it answers `srvr`, the one word that is allowed without further settings."""
        try:
            with socket.create_connection((HOST, site.port(self.name, "client")), timeout=5) as channel:
                channel.sendall(b"srvr")
                return channel.recv(4096).startswith(b"Zookeeper version")
        except OSError:
            return False
