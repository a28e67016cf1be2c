"""The transforms and predicates that a connector's configuration names. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.connect_import.configuration import Configuration

Options = Mapping[str, str]


@dataclass(frozen=True)
class Predicate:
    """When a transform applies.

    Attributes:
        type: its class.
        negated: the transform applies if the predicate is false.
    """

    name: str
    type: str
    options: Options
    negated: bool

    @property
    def kind(self) -> str:
        return _short(self.type)

    def __str__(self) -> str:
        return f"{'not ' if self.negated else ''}{self.name} ({self.type or 'which is not configured'})"


@dataclass(frozen=True)
class Transform:
    """A transform of the chain.

    Attributes:
        kind: its class, without package and side.
        of_key: it changes the record's key.
        predicate: None: it applies to all records.
    """

    name: str
    kind: str
    of_key: bool
    options: Options
    predicate: Predicate | None


def transforms(configuration: Configuration) -> list[Transform]:
    """The chain of transforms, in order."""
    return [_transform(configuration, name) for name in configuration.items("transforms")]


def _transform(configuration: Configuration, name: str) -> Transform:
    options = configuration.below(f"transforms.{name}.")
    kind = options.get("type", "")
    return Transform(name, _short(kind), kind.endswith("$Key"), options, _predicate(configuration, options))


def _predicate(configuration: Configuration, options: Options) -> Predicate | None:
    name = options.get("predicate")
    if not name:
        return None
    own = configuration.below(f"predicates.{name}.")
    return Predicate(name, own.get("type", ""), own, options.get("negate", "").lower() == "true")


def _short(kind: str) -> str:
    return kind.rsplit(".", 1)[-1].split("$", maxsplit=1)[0]
