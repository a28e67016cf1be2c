"""What `batchmerge status` asks Dagster's instance. Answers are plain values: they may come from another process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from resources.connections import data_folder

# The parts of a table's asset key.
TableKey = Sequence[str]


class Tick(BaseModel):
    """The newest tick of a schedule or sensor; `problem`: the class of its error, if it failed."""

    model_config = ConfigDict(frozen=True)
    at: datetime
    problem: str | None = None


class DagsterState(BaseModel):
    """All pipelines at one moment.

    Attributes:
        daemon: whether Dagster's daemon runs; without it no schedule and no sensor starts anything.
        stopped: schedules and sensors that somebody has stopped in Dagster.
        errors: by pipeline the error of its newest finished run, if that failed.
        maintenance_errors: likewise of its newest finished maintenance.
        ticks: by schedule and sensor the newest tick; Dagster deletes old ones.
        runs: by pipeline a line for each run under way.
        paused: by pipeline why a person has paused it; only paused ones.
        tables_paused: by pipeline by whom each table is paused, in the order that was asked; None: it is not.
        problem: why Dagster cannot be asked: nothing of all this is known then.
    """

    model_config = ConfigDict(frozen=True)
    daemon: bool = False
    stopped: frozenset[str] = frozenset()
    errors: dict[str, str] = {}
    maintenance_errors: dict[str, str] = {}
    ticks: dict[str, Tick] = {}
    runs: dict[str, list[str]] = {}
    paused: dict[str, str] = {}
    tables_paused: dict[str, list[str | None]] = {}
    problem: str | None = None


class AsksDagster(Protocol):
    """Asks Dagster's instance, in this process or in another one."""

    def state(self, pipelines: Mapping[str, Sequence[TableKey]]) -> DagsterState:
        """The state of these pipelines, each with the keys of its tables."""

    def stale_keys(self, tables: Sequence[TableKey]) -> list[int]:
        """The number of stale keys at each table's last merge."""


def home_folder() -> Path:
    """The folder of the instance: `DAGSTER_HOME`, else `<data folder>/dagster`."""
    named = os.environ.get("DAGSTER_HOME")
    return Path(named).absolute() if named else data_folder() / "dagster"


def used_home() -> Path | None:
    """The folder of the instance; None: Dagster was never used here."""
    home = home_folder()
    return home if home.exists() else None
