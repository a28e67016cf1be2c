"""Lists every option of a pipeline file and of a connections file, from the models, for docs/options.md.

``python -m tests.kit.option_tables docs/options.md`` writes them there; a test checks that the page is up to date.
"""

from __future__ import annotations

import builtins
import sys
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from jobs.destinations.registry import own_kinds
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from resources import connections

_SCALARS = {
    str: "text",
    SecretStr: "text, a secret",
    int: "number",
    float: "number",
    bool: "true | false",
    Any: "any option",
}
# The only envelope option for keys (`Source` refuses the others).
_KEY_ENVELOPE = "keys of Debezium's MongoDB connector, as JSON text; other envelopes are refused for keys"


@dataclass(frozen=True)
class Option:
    """One option: its path, its values, its default ("required" if it has none) and its meaning."""

    path: str
    kind: str
    default: str
    description: str


def options() -> list[Option]:
    """All options in the order of the models; those of tables once for each kind of table."""
    found = [
        replace(o, kind="mongo", description=_KEY_ENVELOPE) if o.path == "source.key.envelope" else o
        for o in _options(PipelineSpec, "")
        if not o.path.startswith(("tables", "source.key.envelope."))
    ]
    shared = set(Table.model_fields) - {"kind", "connection", "table"}
    common = [o for o in _options(Table, "tables[].") if _field(o) in shared]
    own = [
        Option(f"tables[{kind.name}].{o.path}", o.kind, o.default, o.description)
        for kind in own_kinds().values()
        for o in _options(kind.table, "")
        if o.path.split(".")[0] not in shared and o.path.split(".")[0] != "kind"
    ]
    return [*found, *common, *own]


def connection_models() -> list[type[connections.Connection]]:
    """The models of our kinds of connections, in their order; not those of other packages that are installed."""
    return [
        found
        for found in vars(connections).values()
        if isinstance(found, type) and issubclass(found, connections.Connection) and "kind" in found.model_fields
    ]


def connection_options() -> list[Option]:
    """All options of the kinds of connections."""
    return [
        replace(o, path=f"{_kind(model.model_fields['kind'].annotation)}: {o.path}")
        for model in connection_models()
        for o in _options(model, "")
        if o.path != "kind"
    ]


def _markdown(rows: Sequence[Option]) -> str:
    """The options as a table of docs/options.md."""
    lines = ["| option | takes | default | meaning |", "| --- | --- | --- | --- |"]
    for o in rows:
        cells = (f"`{o.path}`", o.kind, o.default, o.description)
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines)


def _field(option: Option) -> str:
    return option.path.split(".")[1]


def _options(model: type[BaseModel], prefix: str) -> Iterator[Option]:
    for name, field in model.model_fields.items():
        path = prefix + name
        nested = _nested(field.annotation)
        yield Option(path, _kind(field.annotation), _default(field), field.description or _first_line(nested))
        if nested is not None:
            yield from _options(nested, f"{path}.")


def _nested(annotation: Any) -> type[BaseModel] | None:
    """The model below a field, if there is exactly one; the field's description lists alternatives."""
    candidates = [a for a in (annotation, *typing.get_args(annotation)) if _is_model(a)]
    if typing.get_origin(annotation) is list or len(candidates) != 1:
        return None
    found: type[BaseModel] = candidates[0]
    return found


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _kind(annotation: Any) -> str:
    arguments = typing.get_args(annotation)
    match typing.get_origin(annotation):
        case typing.Annotated:
            kind = _kind(arguments[0])
        case typing.Literal:
            kind = " | ".join(str(a) for a in arguments)
        case typing.Union | types.UnionType:
            kind = " | ".join(dict.fromkeys(_kind(a) for a in arguments if a is not type(None)))
        case builtins.list:
            kind = f"list of {_kind(arguments[0])}"
        case builtins.dict:
            kind = f"map of {_kind(arguments[0])} to {_kind(arguments[1])}"
        case _:
            kind = "group" if _is_model(annotation) else _SCALARS[annotation]
    return kind


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return ""
    if value is None or value in ("", [], {}, ()):
        return "none"
    return f"`{value}`" if not isinstance(value, bool) else f"`{str(value).lower()}`"


def _first_line(model: type[BaseModel] | None) -> str:
    return (model.__doc__ or "").strip().splitlines()[0] if model else ""


def with_options(text: str) -> str:
    """The page with up-to-date tables, each between its two marks."""
    for name, rows in (("options", options()), ("connections", connection_options())):
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        head, rest = text.split(begin)
        text = f"{head}{begin}\n{_markdown(rows)}\n{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_options(page.read_text()))
