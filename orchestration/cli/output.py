"""What a command prints: text for people, or with `--json` one JSON value that says the same.

Every command has `--json`. It tells people what it does with `say` and `show`, which are silent then, and hands its
findings to `result`, which is silent otherwise. An error is JSON too: `{"error": {…}}`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from pydantic import BaseModel

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from resources.errors import BatchmergeError

_AS_JSON = ContextVar("as_json", default=False)


def with_json(command: click.Command) -> click.Command:
    """The command, and those below it, with the option `--json`."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_json(below)
    elif not any(option.name == "json" for option in command.params):
        text = "Print one JSON value on standard output."
        command.params.append(click.Option(["--json"], is_flag=True, expose_value=False, callback=_choose, help=text))
    return command


def _choose(ctx: click.Context, option: click.Parameter, chosen: bool) -> None:
    del ctx, option
    _AS_JSON.set(chosen)


def wanted() -> bool:
    """Whether a program reads: JSON."""
    return _AS_JSON.get()


def say(text: str) -> None:
    """A line for people."""
    if not _AS_JSON.get():
        click.echo(text)


def show(table: Table) -> None:
    """A table for people."""
    if not _AS_JSON.get():
        console().print(table)


def result(found: object) -> None:
    """What the command has found or done, for programs: once, at its end."""
    if _AS_JSON.get():
        click.echo(json.dumps(_plain(found), indent=2))


def error(problem: BatchmergeError) -> None:
    """Why a command ends with an exit code other than 0: people read it on standard error."""
    if _AS_JSON.get():
        facts = {name: str(value) for name, value in problem.facts.items()}
        told = {"class": type(problem).__name__, "what": problem.what, "where": problem.where, "remedy": problem.remedy}
        click.echo(json.dumps({"error": {**told, "facts": facts}}, indent=2))
    click.echo(f"batchmerge: {problem}", err=True)


def console() -> Console:
    """Where results go; as wide as the terminal, or wide enough for a file."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 140, highlight=False)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type | Mapping):
        # Not by `asdict`: offsets have dataclasses for keys.
        value = {one.name: getattr(value, one.name) for one in fields(value) if not one.name.startswith("_")}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        return [_plain(one) for one in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, str | int | float | bool | None) else str(value)
