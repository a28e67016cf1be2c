"""Options that describe a table when we create it, compared with the table as it is.

We never change these of a table that exists: a new partition spec, TTL or engine is for people to decide. But we report
options that it does not have, since nobody would notice that (say) a `ttl` has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping


def differences(declared: Mapping[str, object], present: Callable[[], Mapping[str, object] | None]) -> Iterator[str]:
    """Options in which the file and the table differ, as sentences; those that the file leaves out are not compared.

    Args:
        declared: the options that the file names, by name; what is empty counts as left out.
        present: asks for the same of the table, unless the file names none; None: there is no table.
    """
    named = {option: wanted for option, wanted in declared.items() if wanted}
    there = present() if named else None
    if there is None:
        return
    for option, wanted in named.items():
        found = there.get(option)
        if wanted != found:
            yield (
                f"{option} is {_text(wanted)} in the file and {_text(found)} in the table: the option is for tables "
                "that we create, so change the table by hand, or leave the option out"
            )


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "not set"
    return "not set" if value in (None, "", False) else str(value)
