"""SQL templates, one folder per dialect, and the only place where SQL text is made.

Identifiers reach a template as Python strings or paths (tuples) and leave it through the `ident` filter, quoted;
values go in as parameters, never as text.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_QUOTES = {"spark": "`", "bigquery": "`", "clickhouse": "`"}
_ESCAPES = {"spark": "``", "bigquery": "\\`", "clickhouse": "\\`"}


def quote(dialect: str, name: str | Iterable[str]) -> str:
    """An identifier, or a path of identifiers joined by dots, quoted for the dialect."""
    parts = [name] if isinstance(name, str) else list(name)
    mark, escape = _QUOTES[dialect], _ESCAPES[dialect]
    if dialect != "spark":
        parts = [part.replace("\\", "\\\\") for part in parts]
    return ".".join(f"{mark}{part.replace(mark, escape)}{mark}" for part in parts)


def literal(text: str) -> str:
    """A string literal, for the few places where no dialect takes a parameter (types, engine arguments)."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@cache
def _environment(dialect: str) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / dialect),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        autoescape=False,
    )
    environment.filters["ident"] = lambda name: quote(dialect, name)
    environment.filters["text"] = literal
    return environment


def render(dialect: str, template: str, **arguments: object) -> str:
    """The text of `sql/<dialect>/<template>.sql.j2` with these arguments."""
    return _environment(dialect).get_template(f"{template}.sql.j2").render(**arguments)
