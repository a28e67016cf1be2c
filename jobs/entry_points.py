"""What installed packages bring, by entry points: kinds of destination and formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from resources.errors import ConfigurationError


@dataclass(frozen=True)
class Brought:
    """What one package brings under a name.

    Attributes:
        what: for errors, such as "destination kind".
    """

    what: str
    point: EntryPoint
    package: str

    @property
    def where(self) -> str:
        return f"{self.what} {self.point.name!r} of {self.package}"

    def load(self) -> Any:
        """Raises ConfigurationError."""
        try:
            return self.point.load()
        except Exception as problem:
            # A foreign module may raise anything when it is imported: name it.
            raise ConfigurationError(
                f"{self.point.value} cannot be loaded: {type(problem).__name__}: {problem}",
                where=self.where,
                remedy="update or uninstall that package",
            ) from problem


def brought(group: str, what: str) -> Mapping[str, Brought]:
    """By name, in alphabetical order; raises ConfigurationError if two packages bring the same name."""
    found: dict[str, Brought] = {}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        package = point.dist.name if point.dist else "an unnamed package"
        if point.name in found and found[point.name].package != package:
            raise ConfigurationError(
                f"{found[point.name].package} and {package} both bring a {what} {point.name!r}",
                where=f"entry points {group}",
                remedy="uninstall one of them",
            )
        found[point.name] = Brought(what, point, package)
    return found
