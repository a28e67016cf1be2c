"""A BigQuery emulator (`local-bigquery`) on this machine. It needs Python 3.13."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from resources.errors import ConfigurationError
from resources.local.bigquery_jobs import settle_jobs
from resources.local.fake_gcs import FakeGcs
from resources.local.lake import store_of
from resources.local.service import HOST, Command, Say, Service, Site, answers

PROJECT = "batchmerge-local"
# DuckDB extensions of the emulator.
_EXTENSIONS = ("ducklake", "icu", "spatial")
# The extension to load files from the local stand-in for Google Cloud Storage.
_FROM_GCS = ("httpfs",)


class BigQueryEmulator(Service):
    name: ClassVar[str] = "bigquery"
    port_names: ClassVar[tuple[str, ...]] = ("http", "grpc")

    def unavailable(self) -> str | None:
        major, minor, *_ = sys.version_info
        if (major, minor) < (3, 13):
            return f"the BigQuery emulator needs Python 3.13, this is {major}.{minor}"
        if importlib.util.find_spec("local_bigquery") is None:
            return "the Python package local-bigquery is not installed"
        return None

    def prepare(self, site: Site, say: Say) -> Command:
        folder, store = site.folder(self.name), store_of(site.lake)
        gcs = store.url(site) if isinstance(store, FakeGcs) else None
        _install_extensions(folder, (*_EXTENSIONS, *_FROM_GCS) if gcs else _EXTENSIONS)
        for job_id in settle_jobs(folder / "data"):
            say(f"{self.name}: wrote the outcome of job {job_id}, which ran when the emulator was killed")
        argv = [sys.executable, "-m", f"{__package__}.bigquery_program", "serve"]
        argv += ["--host", HOST, "--port", str(site.port(self.name, "http"))]
        argv += ["--grpc-port", str(site.port(self.name, "grpc"))]
        argv += ["--project", PROJECT, "--data-dir", str(folder / "data")]
        # DuckDB looks for its extensions below the home folder; the person's own stays as it is.
        return Command(argv, {"HOME": str(folder), **({"STORAGE_EMULATOR_HOST": gcs} if gcs else {})})

    def ready(self, site: Site) -> bool:
        """Whether it lists the project's datasets."""
        return answers(f"http://{site.address(self.name, 'http')}/bigquery/v2/projects/{PROJECT}/datasets")

    def connections(self, site: Site) -> dict[str, dict[str, Any]]:
        entry = {
            "kind": "bigquery",
            "project": PROJECT,
            "endpoint": f"http://{site.address(self.name, 'http')}",
            "reads": ["gs://", "file:/"],
        }
        return {"bigquery": entry}


def _install_extensions(home: Path, names: Sequence[str]) -> None:
    """Puts DuckDB's extensions, which come as wheels, where DuckDB looks for them."""
    import duckdb

    version = _text(duckdb.sql("select library_version from pragma_version()").fetchone())
    folder = home / ".duckdb" / "extensions" / version / _text(duckdb.sql("pragma platform").fetchone())
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        found = importlib.util.find_spec(f"duckdb_extension_{name}")
        locations = found.submodule_search_locations if found else None
        source = Path(locations[0]) / "extensions" / version / f"{name}.duckdb_extension" if locations else None
        if source is None or not source.exists():
            raise ConfigurationError(
                f"the wheel duckdb-extension-{name} for DuckDB {version} is not installed",
                where="bigquery",
                remedy="run `make setup`",
            )
        link = folder / source.name
        link.unlink(missing_ok=True)
        link.symlink_to(source)


def _text(row: tuple[Any, ...] | None) -> str:
    return str(row[0]) if row else ""
