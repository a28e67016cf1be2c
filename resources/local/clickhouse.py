"""ClickHouse with KeeperMap: its own server out of the wheel `chdb-core`, beside ZooKeeper."""

from __future__ import annotations

import importlib.util
import os
import secrets
import sys
import urllib.request
from pathlib import Path
from typing import Any, ClassVar

from resources.local.service import Command, Say, Service, Site, answers

USER = "batchmerge"


class ClickHouse(Service):
    name: ClassVar[str] = "clickhouse"
    needs: ClassVar[tuple[str, ...]] = ("zookeeper",)
    port_names: ClassVar[tuple[str, ...]] = ("http", "tcp")

    def unavailable(self) -> str | None:
        if importlib.util.find_spec("chdb") is None:
            return "the Python package chdb-core is not installed"
        return None

    def prepare(self, site: Site, say: Say) -> Command:
        del say
        argv = [sys.executable, "-m", f"{__package__}.clickhouse_server", "--folder", str(site.folder(self.name))]
        argv += ["--http-port", str(site.port(self.name, "http")), "--tcp-port", str(site.port(self.name, "tcp"))]
        argv += ["--zookeeper", site.address("zookeeper", "client")]
        argv += ["--user", USER, "--password-file", str(_password_file(site))]
        return Command(argv)

    def ready(self, site: Site) -> bool:
        """Whether our user can log in and query."""
        request = urllib.request.Request(f"http://{site.address(self.name, 'http')}/", b"SELECT 1")
        request.add_header("X-ClickHouse-User", USER)
        request.add_header("X-ClickHouse-Key", _password_file(site).read_text().strip())
        return answers(request)

    def connections(self, site: Site) -> dict[str, dict[str, Any]]:
        entry = {
            "kind": "clickhouse",
            "endpoints": [site.address(self.name, "http")],
            "username": USER,
            "password": f"${{file:{_password_file(site)}}}",
        }
        return {"clickhouse": entry}


def _password_file(site: Site) -> Path:
    """A file that only this user can read, with a password made for this data folder."""
    folder = site.home / "secrets"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "clickhouse-password"
    if not path.exists():
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_urlsafe(24))
    return path
