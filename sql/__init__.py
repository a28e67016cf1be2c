"""SQL templates, one folder per dialect, and the only place where SQL text is made.

Templates that dialects share are in `common`; they import what differs from the dialect's own folder.

Templates get identifiers as Python strings or paths (tuples) and quote them by the `ident` filter (`idents`: several,
with commas); values are parameters, never text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_HERE = Path(__file__).parent
_COMMON = _HERE / "common"


@dataclass(frozen=True)
class Dialect:
    r"""A system's SQL. A destination kind of another package has its own dialect, with its own folder.

    Attributes:
        folder: of the templates, ``<template>.sql.j2``.
        mark: the quote character of identifiers.
        escapes: replacements inside identifiers, in this order: of the mark, usually also of the backslash.
    """

    name: str
    folder: Path
    mark: str
    escapes: tuple[tuple[str, str], ...]

    def text(self) -> str:
        """The text of all templates, to be hashed as the version of the SQL."""
        files = [file for folder in (self.folder, _COMMON) for file in sorted(folder.glob("*.sql.j2"))]
        return "".join(f"{file.name}\n{file.read_text()}" for file in files)


SPARK = Dialect("spark", _HERE / "spark", "`", (("`", "``"),))
BIGQUERY = Dialect("bigquery", _HERE / "bigquery", "`", (("\\", "\\\\"), ("`", "\\`")))
CLICKHOUSE = Dialect("clickhouse", _HERE / "clickhouse", "`", (("\\", "\\\\"), ("`", "\\`")))
_OWN = {dialect.name: dialect for dialect in (SPARK, BIGQUERY, CLICKHOUSE)}


def quote(dialect: Dialect | str, name: str | Iterable[str]) -> str:
    """An identifier, or a path of identifiers joined by dots, quoted for the dialect."""
    found = _OWN[dialect] if isinstance(dialect, str) else dialect
    return ".".join(_quoted(found, part) for part in ([name] if isinstance(name, str) else name))


def _quoted(dialect: Dialect, part: str) -> str:
    for given, escaped in dialect.escapes:
        part = part.replace(given, escaped)
    return f"{dialect.mark}{part}{dialect.mark}"


def literal(text: str) -> str:
    """A string literal, for the few places where dialects do not accept parameters (types, engine arguments)."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@cache
def _environment(dialect: Dialect) -> Environment:
    environment = Environment(
        loader=FileSystemLoader([dialect.folder, _COMMON]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        autoescape=False,
    )
    environment.filters["ident"] = lambda name: quote(dialect, name)
    environment.filters["idents"] = lambda names: ", ".join(quote(dialect, name) for name in names)
    environment.filters["text"] = literal
    return environment


def render(dialect: Dialect | str, template: str, **arguments: object) -> str:
    """The text of the dialect's `<template>.sql.j2` with these arguments; own dialects by name: `sql/<dialect>/`."""
    found = _OWN[dialect] if isinstance(dialect, str) else dialect
    return _environment(found).get_template(f"{template}.sql.j2").render(**arguments)
