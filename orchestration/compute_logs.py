"""Writes what steps print into files, without the four processes that Dagster's own manager starts for each step.

For `compute_logs` of `dagster.yaml`. A command in a terminal shows its output there.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dagster import DagsterInstance
from dagster._config import UserConfigSchema
from dagster._core.execution.compute_logs import redirect_to_file
from dagster._core.instance.ref import compute_logs_directory
from dagster._core.storage.compute_log_manager import CapturedLogContext, ComputeIOType
from dagster._core.storage.local_compute_log_manager import IO_TYPE_EXTENSION, LocalComputeLogManager
from dagster._serdes import ConfigurableClassData

_in_terminal = False


def leave_in_terminal() -> None:
    """From now on this process prints to the terminal: it is a command."""
    global _in_terminal  # noqa: PLW0603  a process has one output
    _in_terminal = True


class FileComputeLogManager(LocalComputeLogManager):
    """Dagster's page reads the files while they grow, as with its own manager."""

    @classmethod
    def config_type(cls) -> UserConfigSchema:
        return {}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> FileComputeLogManager:
        del config_value
        return cls(base_dir="", inst_data=inst_data)

    def register_instance(self, instance: DagsterInstance) -> None:
        """The files are where Dagster's own manager has them."""
        super().register_instance(instance)
        self._base_dir = compute_logs_directory(instance.root_directory)

    @contextmanager
    def capture_logs(self, log_key: Sequence[str]) -> Generator[CapturedLogContext]:
        if _in_terminal:
            yield CapturedLogContext(log_key)
            return
        out, err = (
            Path(self.get_captured_local_path(log_key, IO_TYPE_EXTENSION[kind]))
            for kind in (ComputeIOType.STDOUT, ComputeIOType.STDERR)
        )
        out.parent.mkdir(parents=True, exist_ok=True)
        with redirect_to_file(sys.stdout, str(out)), redirect_to_file(sys.stderr, str(err)):
            yield CapturedLogContext(log_key)
        Path(self.complete_artifact_path(log_key)).touch()  # type: ignore[no-untyped-call]
