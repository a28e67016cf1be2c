"""The folder from which BigQuery loads what Spark's tasks put there: beside the landed files, or where the connection
says. Files that no job loads mean nothing.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from pyiceberg.io import FileIO
from pyiceberg.table import Table

from jobs.destinations.bigquery.direct_load import can_read
from resources.connections import BigQueryConnection
from resources.errors import BatchmergeError
from resources.iceberg import IcebergCatalog
from resources.iceberg_errors import catalog_errors

_LOG = logging.getLogger("batchmerge")
# Each file is a request, and most of the time is spent waiting for its answer.
_THREADS = 8


@dataclass(frozen=True)
class StagingFolder:
    """A folder that BigQuery reads; travels to Spark's workers.

    Attributes:
        storage: its client. May hold secrets: never log it.
    """

    path: str
    storage: FileIO = field(repr=False)

    @classmethod
    def of(
        cls, connection: BigQueryConnection, pipeline: str, landed: Table, catalog: IcebergCatalog
    ) -> StagingFolder | None:
        """The folder of a pipeline; None: BigQuery reads no place to which tasks can write.

        Args:
            landed: the pipeline's intermediate table.
        """
        location = landed.location().rstrip("/")
        if connection.staging:
            path = f"{connection.staging.rstrip('/')}/{pipeline}"
        elif can_read([location], connection.reads):
            # The removal of orphans looks there, and removes the files of a run that died.
            path = f"{location}/staging"
        else:
            return None
        # The credentials of the landed files' client may be for these alone.
        is_beside = path.startswith(f"{location}/")
        return cls(path, landed.io if is_beside else catalog.files_at(path))

    def new_path(self, kind: str) -> str:
        return f"{self.path}/{kind}-{uuid.uuid4()}.parquet"

    @contextmanager
    def removing(self, paths: Sequence[str], where: str) -> Iterator[None]:
        """Removes these files at the end, also after a failure: then some may not be there."""
        try:
            yield
        finally:
            try:
                with catalog_errors(where), ThreadPoolExecutor(_THREADS) as threads:
                    list(threads.map(self._remove, paths))
            except BatchmergeError as problem:
                _LOG.warning("%s: files of a load are left in the staging folder: %s", where, problem)

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self.storage.delete(path)
