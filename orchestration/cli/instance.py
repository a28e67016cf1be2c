"""The Dagster instance of the data folder: its runs, assets and schedules."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from errno import EACCES, EPERM, EROFS
from functools import partial
from pathlib import Path

import click
import dagster as dg
import yaml
from sqlalchemy.exc import OperationalError

from orchestration.compute_logs import leave_in_terminal
from orchestration.databases import keep_databases_open
from orchestration.status.dagster_answers import home_folder
from resources.errors import BatchmergeError, ConfigurationError, Unavailable
from resources.local.locks import exclusive
from resources.local.stack_state import replace_file

_READ_ONLY = (EACCES, EPERM, EROFS)
# The most characters of Dagster's own words in an error.
_MOST_SAID = 500
# They quote a value of the wrong type, which may be a password of digits.
_VALUE = re.compile(r'Value ".*?" of type')
# The end of a password that has an @ itself: its driver takes it for a part of the host's name.
_PASSWORD = re.compile(r'[^\s"]+@')
SETTINGS = Path(__file__).parents[1] / "instance" / "dagster.yaml"


def dagster_home() -> Path:
    """The folder of the instance, made at its first use."""
    home = home_folder()
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        replace_file(home / "dagster.yaml", SETTINGS.read_text())
    os.environ["DAGSTER_HOME"] = str(home)
    return home


@contextmanager
def dagster_instance() -> Iterator[dg.DagsterInstance]:
    """The instance, open. Raises Unavailable: its storage does not answer, at the start or at a later question."""
    leave_in_terminal()
    keep_databases_open()
    home = dagster_home()
    refused: OSError | None = None
    try:
        with ExitStack() as alone:
            # Two processes that create a new instance's tables at once would disturb each other. A folder that only has
            # the settings, as a config map's, has no tables.
            try:
                alone.enter_context(exclusive(home / "lock", partial(click.echo, err=True)))
            except OSError as problem:
                refused = _read_only(problem)
            instance = _opened(home)
        with instance:
            yield instance
    except BatchmergeError:
        raise  # its cause may be the database of an Iceberg catalog
    except Exception as problem:
        if (why := _storage_error(problem)) is None:
            raise
        if refused:
            raise refused from problem
        remedy = "check that Dagster's database runs, and the settings in its dagster.yaml"
        what = f"Dagster's storage does not answer ({_PASSWORD.sub('…@', str(why.orig).strip())})"
        raise Unavailable(what, where=str(home), remedy=remedy) from problem


def _read_only(problem: OSError) -> OSError:
    """The error of a folder that cannot be written; raises any other."""
    if problem.errno not in _READ_ONLY:
        raise problem
    return problem


def _opened(home: Path) -> dg.DagsterInstance:
    try:
        return dg.DagsterInstance.get()
    except (dg.DagsterInvalidConfigError, yaml.YAMLError) as problem:
        said = _VALUE.sub("The value of type", " ".join(str(problem).split()))
        what = f"Dagster's settings are wrong: {said[:_MOST_SAID]}"
        raise ConfigurationError(what, where=str(home / "dagster.yaml"), remedy="correct the file") from problem


def _storage_error(problem: BaseException | None) -> OperationalError | None:
    """The error of the database, which the storages of some databases wrap in one of their own."""
    while problem is not None and not isinstance(problem, OperationalError):
        problem = problem.__cause__
    return problem
