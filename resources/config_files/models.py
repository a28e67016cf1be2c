"""Judging what a file says by a pydantic model: every mistake at once, at the path at which it was written.

Pydantic stops at the first layer that is wrong: it does not run rules between options while one option is wrong. So
what was found is corrected in a copy (a misspelt key gets the name that was meant, a wrong value is taken out) and the
copy is validated again, until nothing is left. What only follows from a value that was taken out is not reported.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from resources.config_files.mistakes import Mistake, Mistakes, Path, closest, one_of, refuse, shown_value
from resources.config_files.options import elsewhere, find, kinds_at, names_of
from resources.config_files.words import choice, in_words
from resources.errors import ConfigurationError

M = TypeVar("M", bound=BaseModel)
# Corrections of the copy, at most.
_ROUNDS = 20


class Options(BaseModel):
    """Options that a person writes. Unknown keys are errors; values never change after loading.

    A model says by `own_mistakes` what is wrong between its options, once each of them is right by itself; what is
    wrong with one option alone belongs to its type, so that it is reported beside mistakes in others. Rules of base
    classes run first, without a call of `super`; where one of them is broken, later ones do not run.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="after")
    def _without_mistakes(self) -> Self:
        for model in reversed(type(self).__mro__):
            if "own_mistakes" in vars(model):
                refuse(vars(model)["own_mistakes"](self))
        return self

    def own_mistakes(self) -> Iterator[Mistake]:
        """Mistakes between the options of this class, with paths that begin at the model."""
        yield from ()


@dataclass
class Examined(Generic[M]):
    """What a model makes of a document.

    Attributes:
        value: None where there are mistakes.
    """

    value: M | None
    mistakes: list[Mistake]


def examine(model: type[M], document: Any, unclear: Iterable[Path] = (), show_values: bool = True) -> Examined[M]:
    """The document as the model, or all that is wrong with it.

    Args:
        unclear: paths whose values are not known; nothing about them is reported.
        show_values: False where values may be secrets: they are not repeated.
    """
    copied = _Copy(copy.deepcopy(document), set(unclear))
    found: list[Mistake] = []
    for _ in range(_ROUNDS):
        try:
            value = model.model_validate(copied.document)
        except ValidationError as problem:
            errors = problem.errors(include_url=False)
        else:
            return Examined(None if found else value, found)
        judged = [(error, m) for error in errors for m in _mistakes(model, copied.document, error, show_values)]
        judged = [(error, m) for error, m in judged if not _is_misspelt(m, judged)]
        for _, mistake in judged:
            written = copied.as_written(mistake)
            if written not in found and not copied.follows(written):
                found.append(written)
        if not copied.correct(judged):
            break
    return Examined(None, found)


def _mistakes(model: type[BaseModel], document: Any, error: Any, show_values: bool) -> list[Mistake]:
    """One error of pydantic's as mistakes, their paths being those of the document."""
    kind, loc = error["type"], tuple(error["loc"])
    path = _in_document(document, loc, kind == "missing")
    if kind == "value_error":
        found = _of_a_rule(error["ctx"]["error"], path)
        return [replace(mistake, path=_as_far_as_written(document, mistake.path)) for mistake in found]
    if kind == "extra_forbidden":
        return [_unknown_key(model, document, loc, path)]
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return [_unknown_tag(error, kinds_at(model, loc), path, show_values)]
    if kind == "invalid_key":
        return [
            Mistake(path, f"the key {shown_value(error['input'])} is not possible", "put it in quotes", at_key=True)
        ]
    what, remedy = in_words(error, find(model, loc)[1], show_values)
    meant = _meant(remedy) if kind == "literal_error" else None
    return [Mistake(path, what, remedy, at_key=kind == "missing" or loc[-1:] == ("[key]",), stand_in=meant)]


def _is_misspelt(missing: Mistake, judged: list[tuple[Any, Mistake]]) -> bool:
    """Whether what is missing is there under another name, which is a mistake of its own."""
    if not missing.path:
        return False
    meant = f"did you mean `{missing.path[-1]}`?"
    return any(m.path[:-1] == missing.path[:-1] and m.at_key and m.remedy == meant for _, m in judged)


def _of_a_rule(raised: Exception, path: Path) -> list[Mistake]:
    if isinstance(raised, Mistakes):
        return [mistake.below(path) for mistake in raised.found]
    if isinstance(raised, ConfigurationError):
        return [Mistake(path, raised.what, raised.remedy)]
    return [Mistake(path, str(raised))]


def _unknown_tag(error: Any, known: list[str], path: Path, show_values: bool) -> Mistake:
    """A map whose `kind` says which options it has, with none or an unknown one."""
    name, given = error["ctx"]["discriminator"].strip("'"), error["input"]
    if not isinstance(given, dict):
        return Mistake(path, f"{shown_value(given)} is not a map (lines of `name: value`)", f"begin with `{name}: …`")
    if name not in given:
        return Mistake((*path, name), "it is missing", f"write {one_of(known)}", at_key=True)
    what, remedy = choice(shown_value(given[name]) if show_values else "the value", given[name], known)
    return Mistake((*path, name), what, remedy, stand_in=_meant(remedy))


def _meant(remedy: str) -> str | None:
    """The name that a remedy guesses."""
    guess = remedy.removeprefix("did you mean `").removesuffix("`?")
    return guess if guess != remedy else None


def _unknown_key(model: type[BaseModel], document: Any, loc: tuple[Any, ...], path: Path) -> Mistake:
    name, what = str(loc[-1]), "there is no such option here"
    owner = find(model, loc[:-1])[0]
    known = names_of(owner)
    meant = closest(name, known)
    places = elsewhere(model, name, owner, path[:-1], _value(document, path[:-1]))
    if places and (meant is None or meant.lower() != name.lower()):
        return Mistake(path, what, f"{places}", at_key=True)
    if meant:
        return Mistake(path, what, f"did you mean `{meant}`?", at_key=True)
    return Mistake(path, what, f"the options here are {', '.join(known)}" if known else "", at_key=True)


def _in_document(document: Any, loc: tuple[Any, ...], missing: bool) -> Path:
    """A location of pydantic's without what is not in the file: names of alternatives, parts that a model adds."""
    path: list[Any] = []
    at = document
    for number, step in enumerate(loc):
        if isinstance(at, dict) and step in at:
            at = at[step]
        elif isinstance(at, dict) and isinstance(step, int) and str(step) in at:
            step, at = str(step), at[str(step)]  # noqa: PLW2901
        elif isinstance(at, list) and isinstance(step, int) and step < len(at):
            at = at[step]
        elif not (missing and number == len(loc) - 1):
            continue
        path.append(step)
    return tuple(path)


def _as_far_as_written(document: Any, path: Path) -> Path:
    """The path of a rule, where a group of options may be written as one value."""
    at = document
    for number, step in enumerate(path):
        if not isinstance(at, (dict, list)):
            return path if at is None else path[:number]
        at = _value(at, (step,))
    return path


def _value(document: Any, path: Path) -> Any:
    at = document
    for step in path:
        try:
            at = at[step]
        except (KeyError, IndexError, TypeError):
            return None
    return at


@dataclass
class _Copy:
    """A copy of the document in which mistakes are corrected, and how to get back from it to what was written.

    Attributes:
        unclear: paths, as written, whose values were taken out.
        converted: paths, as written, whose values were taken for what they seem to mean.
        steps: what was done: (map, new name, old name) or (list, number of the item that was taken out, None).
    """

    document: Any
    unclear: set[Path]
    steps: list[tuple[Path, Any, Any]] = field(default_factory=list)
    converted: set[Path] = field(default_factory=set)

    def as_written(self, mistake: Mistake) -> Mistake:
        below = tuple(self._written(path) for path in mistake.goes_by)
        return replace(mistake, path=self._written(mistake.path), goes_by=below)

    def _written(self, path: Path) -> Path:
        for inside, new, old in reversed(self.steps):
            place = len(inside)
            if path[:place] != inside or len(path) <= place:
                continue
            step = path[place]
            if old is not None and step == new:
                path = (*inside, old, *path[place + 1 :])
            elif old is None and isinstance(step, int) and step >= new:
                path = (*inside, step + 1, *path[place + 1 :])
        return path

    def follows(self, mistake: Mistake) -> bool:
        """Whether the mistake only follows from a value that was taken out."""
        inside = any(mistake.path[: len(path)] == path for path in self.converted)
        paths = (mistake.path, *mistake.goes_by)
        return inside or any(_overlap(path, gone) for path in paths for gone in self.unclear)

    def correct(self, judged: list[tuple[Any, Mistake]]) -> bool:
        """Corrects what it can of these mistakes, each with pydantic's error. Returns whether it could."""
        done: list[Path] = []
        # Later items of a list first, so that earlier ones keep their numbers.
        for error, mistake in reversed(judged):
            if not any(_overlap(path, mistake.path) for path in done) and self._correct_one(error, mistake):
                done.append(mistake.path)
        return bool(done)

    def _correct_one(self, error: Mapping[str, Any], mistake: Mistake) -> bool:
        kind, path = error["type"], mistake.path
        if kind == "extra_forbidden":
            return self._rename(path, mistake.remedy) or self._take_out(path, clear=True)
        if kind == "value_error" and not error["loc"]:
            return False  # the rules between all parts: there is nothing after them
        return self._replace(mistake) or self._convert(kind, path, error["input"]) or self._take_out(path)

    def _rename(self, path: Path, remedy: str) -> bool:
        inside = _value(self.document, path[:-1])
        new = _meant(remedy)
        if new is None or not isinstance(inside, dict) or new in inside or path[-1] not in inside:
            return False
        inside[new] = inside.pop(path[-1])
        self.steps.append((path[:-1], new, path[-1]))
        return True

    def _replace(self, mistake: Mistake) -> bool:
        inside = _value(self.document, mistake.path[:-1])
        if mistake.stand_in is None or not _has(inside, mistake.path[-1]):
            return False
        inside[mistake.path[-1]] = mistake.stand_in
        return True

    def _convert(self, kind: str, path: Path, given: Any) -> bool:
        """Converts a value of which it is clear what it means."""
        inside = _value(self.document, path[:-1]) if path else None
        if not isinstance(inside, dict) or inside.get(path[-1]) is not given:
            return False
        if kind == "string_type" and isinstance(given, (int, float)):
            inside[path[-1]] = str(given)
        elif kind == "list_type" and isinstance(given, str):
            inside[path[-1]] = [given]
        else:
            return False
        self.converted.add(self._written(path))
        return True

    def _take_out(self, path: Path, clear: bool = False) -> bool:
        """Takes a value out; if there is none, takes out what is around it."""
        while path:
            inside, last = _value(self.document, path[:-1]), path[-1]
            if _has(inside, last):
                del inside[last]
                break
            path = path[:-1]
        if path and not clear:
            self.unclear.add(self._written(path))
        if path and isinstance(inside, list):
            self.steps.append((path[:-1], path[-1], None))
        return bool(path)


def _has(inside: Any, step: Any) -> bool:
    if isinstance(inside, list):
        return isinstance(step, int) and step < len(inside)
    return isinstance(inside, dict) and step in inside


def _overlap(one: Path, other: Path) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]
