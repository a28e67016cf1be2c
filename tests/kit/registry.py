"""A real Schema Registry for tests: Apicurio, with its Confluent-compatible API, from Maven."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from resources.local.jars import pyspark_folder
from resources.local.java import Java, find_java
from resources.local.locks import exclusive
from resources.local.ports import free_port
from resources.local.service import cache_folder
from tests.kit.processes import stop
from tests.kit.waiting import PATIENCE, until

VERSION = "3.3.3"
_IVY = f"""<ivy-module version='2.0' xmlns:m='http://ant.apache.org/ivy/maven'>
<info organisation='batchmerge' module='registry'/><configurations><conf name='default'/></configurations>
<dependencies><dependency org='io.apicurio' name='apicurio-registry-app' rev='{VERSION}' transitive='false'
conf='default->default'><artifact name='apicurio-registry-app' type='tar.gz' ext='tar.gz' m:classifier='all'/>
</dependency></dependencies></ivy-module>"""


def _application(java: Java) -> Path:
    """The unpacked application, downloaded once (159 MB)."""
    folder = cache_folder() / f"apicurio-{VERSION}"
    with exclusive(cache_folder() / "apicurio.lock", print):
        if not folder.is_dir():
            partial = folder.with_suffix(".partial")
            partial.mkdir(parents=True, exist_ok=True)
            (partial / "ivy.xml").write_text(_IVY)
            ivy = next((pyspark_folder() / "jars").glob("ivy-*.jar"))
            settings = os.environ.get("BATCHMERGE_IVY_SETTINGS")
            argv = [str(java.executable), *java.options, "-jar", str(ivy)]
            argv += ["-settings", settings] if settings else []
            argv += ["-cache", str(cache_folder() / "ivy"), "-ivy", str(partial / "ivy.xml"), "-confs", "default"]
            argv += ["-retrieve", f"{partial}/[artifact].[ext]"]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            archive = partial / "apicurio-registry-app.tar.gz"
            assert archive.exists(), done.stdout[-2000:]
            with tarfile.open(archive) as packed:
                packed.extractall(partial / "app", filter="data")
            (partial / "app").replace(folder)
    return folder


@contextmanager
def running_registry(folder: Path) -> Iterator[str]:
    """The address of the Confluent-compatible API of a registry that stops afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BATCHMERGE_JAVA", "wheel")  # it needs Java 21
        java = find_java(print)
        application = _application(java)
    port = free_port(())
    management = free_port((port,))
    settings = {
        "APICURIO_STORAGE_KIND": "sql",
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(port),
        "QUARKUS_MANAGEMENT_HOST": "127.0.0.1",
        "QUARKUS_MANAGEMENT_PORT": str(management),
    }
    argv = [
        str(java.executable),
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-jar",
        str(application / "quarkus-run.jar"),
    ]
    with (folder / "registry.log").open("w") as log:
        process = subprocess.Popen(
            argv, cwd=folder, env={**os.environ, **settings}, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        _wait(url, process)
        yield url
    finally:
        # It waits for connections that clients keep open.
        stop(process, patience=30)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    def answers() -> bool:
        assert process.poll() is None, "the registry has stopped; see registry.log"
        try:
            return httpx.get(f"{url}/subjects", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    until(answers, what="answer of the registry")


def register(url: str, subject: str, schema: str, kind: str = "AVRO", references: tuple[str, ...] = ()) -> int:
    """Registers a version of a schema; `references` are subjects that it refers to by their name. Gives its id."""
    document: dict[str, Any] = {
        "schema": schema,
        "schemaType": kind,
        "references": [{"name": name, "subject": name, "version": 1} for name in references],
    }
    answer = httpx.post(f"{url}/subjects/{subject}/versions", json=document, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["id"])
