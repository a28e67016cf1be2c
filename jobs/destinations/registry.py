"""The available kinds of destination: those whose packages are installed, found by their entry points.

A kind is loaded when the first pipeline file is read, its client libraries only when a pipeline uses it (`Kind.open`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args

from jobs.destinations.kind import Kind
from jobs.entry_points import Brought, brought
from resources.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from jobs.spec.pipeline import PipelineSpec
    from jobs.spec.tables import Table

GROUP = "batchmerge.destinations"
_OWN = "batchmerge"


def kinds() -> Mapping[str, Kind[Any]]:
    """All kinds by name, in alphabetical order.

    Raises:
        ConfigurationError: an installed kind cannot be loaded or does not fit its entry point; or there is none.
    """
    return MappingProxyType({name: kind for name, (kind, _) in _installed().items()})


def own_kinds() -> Mapping[str, Kind[Any]]:
    """The kinds that come with Batchmerge itself, which its documentation lists."""
    return MappingProxyType({name: kind for name, (kind, package) in _installed().items() if package == _OWN})


def kind_of(table: Table) -> Kind[Any]:
    """The kind of a table of a pipeline file."""
    return kinds()[table.kind]


def warnings_of(spec: PipelineSpec, table: Table) -> Iterator[str]:
    """What is valid and probably not intended, as sentences for `check` and `plan`; from the pipeline file alone."""
    if not table.has_coordinates:
        yield (
            "rows have no topic, partition and offset, so this pipeline can neither be replayed nor retry dead "
            "letters: add `metadata_columns: [topic, partition, offset]` before the first run"
        )
    yield from kind_of(table).warnings(spec, table)


@cache
def _installed() -> dict[str, tuple[Kind[Any], str]]:
    """Kinds by name, each with the package that provides it."""
    found = {name: (_load(one), one.package) for name, one in brought(GROUP, "destination kind").items()}
    if not any(package == _OWN for _, package in found.values()):
        raise ConfigurationError(
            "Batchmerge's own kinds of destination are not registered: its installation is older than its code",
            where=f"entry points {GROUP}",
            remedy="install it again: `make setup`, or `.venv/bin/python -m pip install --no-deps -e .`",
        )
    return found


def _load(one: Brought) -> Kind[Any]:
    kind: Kind[Any] = one.load()
    if problems := _problems(one.point.name, kind):
        raise ConfigurationError("; ".join(problems), where=one.where, remedy="update or uninstall that package")
    return kind


def _problems(name: str, kind: object) -> list[str]:
    """The problems of an object that the entry point of this name names."""
    if not isinstance(kind, Kind):
        return [f"the entry point gives a {type(kind).__name__}, not a `jobs.destinations.kind.Kind`"]
    models = {"table": kind.table, "connection": kind.connection}
    return [
        *([f"its name is {kind.name!r}"] if kind.name != name else []),
        *(f"the model of its {what} has kind {_tag(m)}" for what, m in models.items() if _tag(m) != (name,)),
    ]


def _tag(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("kind")
    return get_args(field.annotation) if field else ()
