"""What is wrong in a file that a person wrote: the value, the error that carries several, and how they are shown."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from resources.errors import ConfigurationError

PathPart = str | int | None
Path = tuple[PathPart, ...]
# Least similarity of a name to the known one that was probably meant; 1: equal.
_ALIKE = 0.66
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*")


@dataclass(frozen=True)
class Mistake:
    """One mistake in a file.

    Attributes:
        path: where it is, from the top of the file, or from the part of it that a rule is about.
        what: what is wrong, in a few words that do not repeat the path.
        remedy: what to do; a question ("did you mean …?") where we guess.
        at_key: the key is wrong, not the value: its line and column are shown.
        goes_by: other parts of the file that the rule reads; if one of them is wrong, the rule is not applied.
        stand_in: a value to go on with when looking for further mistakes; None: the wrong one is taken out.
    """

    path: Path
    what: str
    remedy: str = ""
    at_key: bool = False
    goes_by: tuple[Path, ...] = ()
    stand_in: str | None = None

    def below(self, path: Path) -> Mistake:
        """The same mistake, with its paths below this one."""
        return replace(self, path=path + self.path, goes_by=tuple(path + other for other in self.goes_by))

    @property
    def placed(self) -> str:
        """What is wrong where, without the remedy."""
        return f"{shown_path(self.path)}: {self.what}" if self.path else self.what

    @property
    def sentence(self) -> str:
        if not self.remedy:
            return self.placed
        advice = self.remedy[0].upper() + self.remedy[1:] if self.remedy.endswith("?") else f"Fix: {self.remedy}"
        return f"{self.placed}. {advice}"


class Mistakes(ValueError):
    """Raised by a model's validator: mistakes, with paths that begin at that model."""

    def __init__(self, found: Sequence[Mistake]) -> None:
        self.found = list(found)
        super().__init__("; ".join(mistake.sentence for mistake in found))


class WrongFile(ConfigurationError):
    """A file with mistakes.

    Attributes:
        where: the file.
        what: one line a mistake: file, line, column, path and what is wrong there.
    """

    def _sentence(self) -> str:
        lines = self.what.splitlines()
        if len(lines) == 1:
            return self.what
        return "\n".join([f"{len(lines)} mistakes", *(f"  {line}" for line in lines)])


def refuse(found: Iterable[Mistake]) -> None:
    """For validators: raises `Mistakes` where there are any."""
    mistakes = list(found)
    if mistakes:
        raise Mistakes(mistakes)


def shown_path(path: Path) -> str:
    """``tables[0].partition_by``; keys that are no names stand in brackets and quotes."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif isinstance(step, str) and _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f'["{"null" if step is None else step}"]'
    return text


def shown_value(value: object) -> str:
    """A value as its writer recognises it, cut where it is long."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    text = str(value)
    text = text if len(text) <= 60 else f"{text[:57]}…"
    return f"'{text}'" if isinstance(value, str) else text


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant; None where none is like it."""
    by_form: dict[str, str] = {}
    for candidate in known:
        by_form.setdefault(_form(candidate), candidate)
    found = difflib.get_close_matches(_form(name), by_form, 1, _ALIKE)
    return by_form[found[0]] if found else None


def did_you_mean(name: str, known: Sequence[str], otherwise: str | None = None) -> str:
    """A remedy for an unknown name: the one that was probably meant, else this other one, by default those that there
    are."""
    meant = closest(name, known)
    if meant is not None:
        return f"did you mean `{meant}`?"
    if otherwise is not None:
        return otherwise
    return f"use {one_of(known)}" if known else ""


def one_of(names: Sequence[str], last: str = "or") -> str:
    """``a, b or c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}" if names else ""


def _form(name: str) -> str:
    """`maxRecords`, `max-records` and `max_records` are the same name in other habits."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()
