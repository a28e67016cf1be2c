"""The transforms and predicates that a connector's configuration names; predicates also as SQL conditions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.connect_import.chain import Chain
from jobs.connect_import.configuration import Configuration
from sql import literal

ALWAYS, NEVER = "true", "false"
TOMBSTONE = "RecordIsTombstone"
TransformOptions = Mapping[str, str]


@dataclass(frozen=True)
class Predicate:
    """When a transform applies.

    Attributes:
        type: its class.
        negated: the transform applies if the predicate is false.
    """

    name: str
    type: str
    options: TransformOptions
    negated: bool

    @property
    def kind(self) -> str:
        return _short(self.type)

    def __str__(self) -> str:
        return f"{'not ' if self.negated else ''}{self.name} ({self.type or 'which is not configured'})"


@dataclass(frozen=True)
class ConfiguredTransform:
    """A transform of the chain.

    Attributes:
        kind: its class, without package and side.
        of_key: it changes the record's key.
        predicate: None: it applies to all records.
    """

    name: str
    kind: str
    of_key: bool
    options: TransformOptions
    predicate: Predicate | None


def transforms(configuration: Configuration) -> list[ConfiguredTransform]:
    """The chain of transforms, in order."""
    return [_transform(configuration, name) for name in configuration.items("transforms")]


def _transform(configuration: Configuration, name: str) -> ConfiguredTransform:
    options = configuration.below(f"transforms.{name}.")
    kind = options.get("type", "")
    return ConfiguredTransform(name, _short(kind), kind.endswith("$Key"), options, _predicate(configuration, options))


def _predicate(configuration: Configuration, options: TransformOptions) -> Predicate | None:
    name = options.get("predicate")
    if not name:
        return None
    own = configuration.below(f"predicates.{name}.")
    return Predicate(name, own.get("type", ""), own, options.get("negate", "").lower() == "true")


def condition(chain: Chain, predicate: Predicate | None) -> str | None:
    """The SQL condition on records (not tombstones) on which a transform applies, `ALWAYS` or `NEVER`; None: the
    predicate is unknown."""
    if predicate is None:
        return ALWAYS
    if predicate.kind == TOMBSTONE:
        return ALWAYS if predicate.negated else NEVER
    if predicate.kind == "TopicNameMatches":
        pattern = literal(f"^(?:{predicate.options.get('pattern', '')})$")
        found = f"({chain.seen('_topic')} rlike {pattern})"
    elif predicate.kind == "HasHeaderKey":
        wanted = literal(predicate.options.get("name", ""))
        # A record without headers has null in `_headers`.
        found = f"coalesce(exists({chain.seen('_headers')}, h -> h.key = {wanted}), false)"
    else:
        return None
    return f"(not {found})" if predicate.negated else found


def _short(kind: str) -> str:
    return kind.rsplit(".", 1)[-1].split("$", maxsplit=1)[0]
