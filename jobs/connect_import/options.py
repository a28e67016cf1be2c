"""The translation of options of other products: an option has an equivalent, is not needed, or has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase


class OptionStatus(Enum):
    """The result for an option, in the words of the report."""

    EQUIVALENT = "equivalent"
    NOT_NEEDED = "not needed any more"
    NONE = "no equivalent"


@dataclass(frozen=True)
class Option:
    """The translation of an option: its equivalent, why it is not needed, or what to do instead."""

    status: OptionStatus
    text: str


def equivalent(text: str) -> Option:
    return Option(OptionStatus.EQUIVALENT, text)


def not_needed(why: str) -> Option:
    return Option(OptionStatus.NOT_NEEDED, why)


def none(instead: str) -> Option:
    return Option(OptionStatus.NONE, instead)


# From option name to its translation; `*` in a name matches anything.
Options = Mapping[str, Option]


def find(name: str, *tables: Options) -> Option | None:
    """The entry of this option: the exact name first, then the longest pattern that matches."""
    for table in tables:
        if name in table and "*" not in name:
            return table[name]
    entries = [entry for table in tables for entry in table.items()]
    matching = [(pattern, option) for pattern, option in entries if "*" in pattern and fnmatchcase(name, pattern)]
    return max(matching, key=lambda entry: len(entry[0]))[1] if matching else None
