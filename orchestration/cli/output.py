"""What a command prints: text for people, or with `--json` one JSON value that says the same.

Every command has `--json`. `say` and `table` print for people, and nothing with `--json`; `result` prints the JSON
value, and nothing without it. An error is JSON too, `{"error": {…}}`, unless the result is printed already: then the
error is on standard error alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from pydantic import BaseModel

if TYPE_CHECKING:
    from rich.console import Console

    from resources.errors import BatchmergeError

_AS_JSON = ContextVar("as_json", default=False)
_HAS_RESULT = ContextVar("has_result", default=False)


@contextmanager
def of_command(arguments: Sequence[str]) -> Iterator[None]:
    """Looks for `--json` before click parses the arguments, which may fail. Nothing of it outlives the command."""
    as_json, has_result = _AS_JSON.set("--json" in arguments), _HAS_RESULT.set(False)
    try:
        yield
    finally:
        _AS_JSON.reset(as_json)
        _HAS_RESULT.reset(has_result)


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
    """Whether `--json` was given."""
    return _AS_JSON.get()


def say(text: str) -> None:
    """A line for people."""
    if not _AS_JSON.get():
        click.echo(text)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """A table for people: None is an empty cell; numbers are at the right and have separators."""
    if _AS_JSON.get():
        return
    from rich.table import Table

    rows, shown = list(rows), Table(title=title, title_justify="left")
    for n, name in enumerate(columns):
        has_numbers = any(isinstance(row[n], int | float) for row in rows)
        # What is too wide goes on below: an offset or a name without its end is another one.
        shown.add_column(name, justify="right" if has_numbers else "left", overflow="fold")
    for row in rows:
        shown.add_row(*map(_cell, row))
    console().print(shown)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def result(found: object, *, is_one_of_many: bool = False) -> None:
    """Prints what the command has found or done as JSON: once, at its end.

    Args:
        is_one_of_many: more values follow, so each is one line.
    """
    if _AS_JSON.get():
        _HAS_RESULT.set(True)
        click.echo(json.dumps(_plain(found), indent=None if is_one_of_many else 2))


def error(problem: BatchmergeError) -> None:
    """Prints the error that ends the command: on standard error, and as JSON."""
    facts = {name: str(value) for name, value in problem.facts.items()}
    _fail(type(problem).__name__, problem.what, problem.where, problem.remedy, facts)
    click.echo(f"batchmerge: {problem}", err=True)


def usage_error(problem: click.ClickException) -> None:
    """Prints that the command does not accept its arguments."""
    command = problem.ctx.command_path if isinstance(problem, click.UsageError) and problem.ctx else "batchmerge"
    _fail(type(problem).__name__, problem.format_message(), command, f"see `{command} --help`", {})
    problem.show()


def cancelled() -> None:
    _fail("Cancelled", "cancelled", "", "run it again", {})
    click.echo("cancelled", err=True)


def _fail(kind: str, what: str, where: str, remedy: str, facts: Mapping[str, str]) -> None:
    if not _HAS_RESULT.get():
        result({"error": {"class": kind, "what": what, "where": where, "remedy": remedy, "facts": facts}})


def console() -> Console:
    """Standard output, as wide as the terminal, or wide enough for a file."""
    from rich.console import Console

    # What stands in a cell is no markup: it may be a record's value.
    width = None if sys.stdout.isatty() else 140
    return Console(width=width, highlight=False, markup=False, emoji=False)


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
