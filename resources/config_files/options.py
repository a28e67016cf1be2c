"""The options of a pydantic model by their place: what is at a place, and where an option of a given name is."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Tag
from pydantic.fields import FieldInfo

from resources.config_files.mistakes import Path, one_of, shown_path

# Places that a remedy names, at most.
_MOST = 3


def find(model: type[BaseModel], loc: tuple[Any, ...]) -> tuple[Any, FieldInfo | None]:
    """The type at a location of pydantic's, and the option that it belongs to; None where it is unknown."""
    at: Any = model
    option: FieldInfo | None = None
    for step in loc:
        at = _chosen(at, step)
        if at is None:
            return None, option
        if _is_model(at) and step in at.model_fields:
            option = at.model_fields[step]
            at = option.annotation
        elif get_origin(at) in (list, tuple, set) and isinstance(step, int):
            at = get_args(at)[0]
        elif get_origin(at) is dict:
            at = get_args(at)[1]
    return _plain(at), option


def kinds_at(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    """The values of the option that distinguishes the alternatives at a location."""
    return [str(value) for member in _members(find(model, loc)[0]) if _is_model(member) for value in _literals(member)]


def names_of(owner: Any) -> list[str]:
    return list(owner.model_fields) if _is_model(owner) else []


def elsewhere(model: type[BaseModel], name: str, owner: Any, here: Path, beside: Any) -> str:
    """A remedy for an option that stands in the wrong place; empty where there is no option of that name.

    Args:
        owner: the model at the place where it stands.
        here: that place.
        beside: what is written there.
    """
    if _is_model(owner):
        for group, inner in _groups(owner):
            if name in inner.model_fields and "[" not in group:
                return _into(name, group, inner, here, beside)
    found = list(dict.fromkeys(".".join((*path, name)) for path in _paths(model, name)))
    if not found or len(found) > _MOST:
        return ""
    return f"it belongs in another place: {one_of([f'`{path}`' for path in found])}"


def _into(name: str, group: str, inner: type[BaseModel], here: Path, beside: Any) -> str:
    """A remedy for an option of a group beside it, which may be written as the value of its first option alone."""
    written = beside.get(group) if isinstance(beside, dict) else None
    place = f"`{shown_path((*here, group))}`"
    first = next(iter(inner.model_fields))
    if isinstance(written, str):
        return f"it belongs in {place}: write `{group}: {{{first}: {written}, {name}: …}}`"
    return f"it belongs in {place}: write it there"


def _paths(model: type[BaseModel], name: str, inside: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All places that have an option of that name."""
    if name in model.model_fields:
        yield inside
    for option, inner in _groups(model):
        yield from _paths(inner, name, (*inside, option))


def _groups(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Options that are models, or lists of them: name (`tables[clickhouse]` for one of several kinds) and model."""
    for name, option in model.model_fields.items():
        found = [a for a in _members(option.annotation) if _is_model(a)]
        for inner in found:
            kinds = [k for k in _literals(inner) if len(found) > 1]
            yield (f"{name}[{kinds[0]}]" if kinds else name), inner


def _members(annotation: Any) -> Iterator[Any]:
    plain = _plain(annotation)
    if get_origin(plain) in (list, Union, types.UnionType):
        for argument in get_args(plain):
            yield from _members(argument)
    else:
        yield plain


def _chosen(annotation: Any, step: Any) -> Any:
    """The alternative of a union that a step names or goes into; the annotation itself where there is no choice."""
    plain = _plain(annotation)
    if get_origin(plain) not in (Union, types.UnionType):
        return plain
    members = [a for a in get_args(plain) if a is not type(None)]
    if len(members) == 1:
        return _chosen(members[0], step)
    for member in members:
        tags = [m.tag for m in get_args(member)[1:] if isinstance(m, Tag)] if get_origin(member) is Annotated else []
        inner = _plain(member)
        if step in tags or (_is_model(inner) and (step == inner.__name__ or step in _literals(inner))):
            return inner
    return None


def _literals(model: type[BaseModel]) -> list[Any]:
    """The value of the option that distinguishes the kinds."""
    return [
        value
        for option in model.model_fields.values()
        if get_origin(option.annotation) is Literal and option.is_required()
        for value in get_args(option.annotation)
        if len(get_args(option.annotation)) == 1
    ]


def _plain(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        members = [a for a in get_args(annotation) if a is not type(None)]
        if len(members) == 1:
            return _plain(members[0])
    return annotation


def _is_model(annotation: Any) -> typing.TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
