"""What is known of a stack between commands: files of its data folder, each written in one step."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from resources.errors import ConfigurationError
from resources.local.processes import Running
from resources.local.service import Lake


class StackState(BaseModel):
    """`stack.json`."""

    model_config = ConfigDict(extra="forbid")
    ports: dict[str, dict[str, int]] = Field(default_factory=dict)
    processes: dict[str, Running] = Field(default_factory=dict)
    lake: Lake = "file"

    @classmethod
    def read(cls, home: Path) -> StackState:
        path = home / "stack.json"
        try:
            return cls.model_validate_json(path.read_text())
        except FileNotFoundError:
            return cls()
        except ValidationError:
            raise ConfigurationError(
                "the file is not the state of local services",
                where=str(path),
                remedy="stop its services by hand, then remove the file",
            ) from None

    def write(self, home: Path) -> None:
        replace_file(home / "stack.json", self.model_dump_json(indent=2))


def add_ui(home: Path, port: int, running: Running) -> None:
    """Notes Dagster's web page on this port, so that `down` ends it too."""
    (home / "ui").mkdir(parents=True, exist_ok=True)
    replace_file(_ui(home, port), running.model_dump_json())


def remove_ui(home: Path, port: int) -> None:
    _ui(home, port).unlink(missing_ok=True)


def uis(home: Path) -> dict[int, Running]:
    """Dagster's web pages of this data folder, by port; some may have ended."""
    found = {}
    for file in sorted(home.glob("ui/*.json")):
        # `down` has removed it meanwhile, or a power failure has left it empty, which its page has not outlived.
        with suppress(FileNotFoundError, ValidationError):
            found[int(file.stem)] = Running.model_validate_json(file.read_text())
    return found


def _ui(home: Path, port: int) -> Path:
    return home / "ui" / f"{port}.json"


def replace_file(path: Path, text: str) -> None:
    """Writes the file in one step: a reader, or a crash, sees the old one or the new one."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)
