"""A REST catalog server: Iceberg's own, from the jars of its tests, over a catalog in a SQLite file.

Iceberg's test fixture (`RESTCatalogServer`) listens on every address, so its servlet is put into Jetty by an XML file
here, which Jetty's own main class starts.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

import yaml

from resources.connections import IcebergConnection
from resources.local import processes
from resources.local.jars import Bundle, classpath, fetch, pyspark_folder
from resources.local.java import find_java
from resources.local.jvm import jvm
from resources.local.ports import free_port
from resources.local.service import HOST, Command
from tests.kit.processes import until_listens

_JETTY = "11.0.26"
LIBRARIES = Bundle(
    "rest-catalog",
    (
        ("org.apache.iceberg", "iceberg-core", "1.11.0"),
        ("org.eclipse.jetty", "jetty-servlet", _JETTY),
        ("org.eclipse.jetty", "jetty-xml", _JETTY),
        ("org.xerial", "sqlite-jdbc", "3.46.1.0"),
    ),
    without=((r"org\.slf4j", ".*"),),
)


@dataclass(frozen=True)
class Classified(Bundle):
    """Libraries by their classifier, without dependencies."""

    classifier: str = ""

    def dependencies(self) -> str:
        return "".join(
            f"<dependency org={quoteattr(org)} name={quoteattr(name)} rev={quoteattr(rev)} conf='default->default'"
            " transitive='false' xmlns:m='http://ant.apache.org/ivy/maven'><artifact"
            f" name={quoteattr(name)} type='jar' ext='jar' m:classifier={quoteattr(self.classifier)}/></dependency>"
            for org, name, rev in self.coordinates
        )


# Apart from the others: Ivy would take one artifact of a module only.
SERVLET = Classified("rest-servlet", (("org.apache.iceberg", "iceberg-core", "1.11.0"),), classifier="tests")

_SERVER = """\
<?xml version="1.0"?>
<!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "https://www.eclipse.org/jetty/configure_10_0.dtd">
<Configure id="Server" class="org.eclipse.jetty.server.Server">
  <Call name="addConnector">
    <Arg><New class="org.eclipse.jetty.server.ServerConnector">
      <Arg><Ref refid="Server"/></Arg>
      <Set name="host">{host}</Set>
      <Set name="port">{port}</Set>
    </New></Arg>
  </Call>
  <New id="properties" class="java.util.HashMap">
    <Put name="uri">jdbc:sqlite:{folder}/catalog.db</Put>
    <Put name="warehouse">file://{folder}/warehouse</Put>
    <Put name="jdbc.schema-version">V1</Put>
    <Put name="catalog-impl">org.apache.iceberg.jdbc.JdbcCatalog</Put>
  </New>
  <Call id="catalog" class="org.apache.iceberg.CatalogUtil" name="buildIcebergCatalog">
    <Arg>rest_backend</Arg>
    <Arg><Ref refid="properties"/></Arg>
    <Arg><New class="org.apache.hadoop.conf.Configuration"/></Arg>
  </Call>
  <Set name="handler">
    <New class="org.eclipse.jetty.servlet.ServletContextHandler">
      <Set name="contextPath">/</Set>
      <Call name="addServlet">
        <Arg><New class="org.eclipse.jetty.servlet.ServletHolder">
          <Arg><New class="org.apache.iceberg.rest.RESTCatalogServlet">
            <Arg><New class="org.apache.iceberg.rest.RESTCatalogAdapter">
              <Arg><Ref refid="catalog"/></Arg>
            </New></Arg>
          </New></Arg>
        </New></Arg>
        <Arg>/*</Arg>
      </Call>
    </New>
  </Set>
</Configure>
"""


class RestCatalog:
    """A server on a port of its own, over a catalog and a warehouse in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._log = folder, folder / "server.log"
        self._java, self._port = find_java(print), free_port(set())
        self._jars = classpath(
            fetch(LIBRARIES, self._java, print), fetch(SERVLET, self._java, print), pyspark_folder() / "jars"
        )
        (folder / "warehouse").mkdir(parents=True)
        self._xml = folder / "server.xml"
        self._xml.write_text(_SERVER.format(host=HOST, port=self._port, folder=folder))
        self._running: processes.Running | None = None

    @property
    def connection(self) -> IcebergConnection:
        uri = f"http://{HOST}:{self._port}"
        return IcebergConnection(kind="iceberg", type="rest", uri=uri, warehouse="file://unused")

    def start(self) -> None:
        """Also after it was killed: with everything that it had."""
        argv = jvm(self._java, self._folder, "256m", self._jars)
        command = Command([*argv, "org.eclipse.jetty.xml.XmlConfiguration", str(self._xml)])
        self._running = processes.start(command, self._log, self._folder)
        until_listens(self._running, [self._port], self._log)

    def kill(self) -> None:
        assert self._running
        os.kill(self._running.pid, signal.SIGKILL)
        while processes.is_alive(self._running):
            time.sleep(0.02)

    def stop(self) -> None:
        if self._running:
            processes.stop(self._running)


@contextmanager
def rest_catalog(folder: Path) -> Iterator[IcebergConnection]:
    """The connection to a running server, which stops at the end."""
    server = RestCatalog(folder)
    try:
        server.start()
        yield server.connection
    finally:
        server.stop()


def connections_with(lake: IcebergConnection, base: Path, file: Path) -> Path:
    """Writes a connections file like `base` whose lake is this one."""
    document = yaml.safe_load(base.read_text())
    document["connections"]["lake"] = lake.model_dump(exclude_none=True)
    file.write_text(yaml.safe_dump(document))
    return file


@contextmanager
def rest_connections(base: Path, folder: Path) -> Iterator[Path]:
    """A connections file like `base`, but the lake is a running REST catalog, which commits several tables at once."""
    with rest_catalog(folder / "server") as lake:
        yield connections_with(lake, base, folder / "connections.yaml")
