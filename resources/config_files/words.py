"""What pydantic finds wrong with a value, in the words of people who write the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic.fields import FieldInfo

from resources.config_files.mistakes import closest, one_of, shown_value

Said = tuple[str, str]
Phrase = Callable[[str, Any, Mapping[str, Any], FieldInfo | None], Said]


def in_words(error: Mapping[str, Any], field: FieldInfo | None, show_value: bool) -> Said:
    """What is wrong and what to do, for an error of pydantic's about a value.

    Args:
        show_value: False where it may be a secret.
    """
    kind, given, facts = error["type"], error["input"], error.get("ctx", {})
    value = shown_value(given) if show_value or isinstance(given, (dict, list, type(None))) else "the value"
    if given is None and kind not in ("literal_error", "missing"):
        return "there is no value", f"write one{_meaning(field)}, or take the line out"
    for family, words in _FAMILIES.items():
        if kind in family.split():
            return words(value, given, facts, field)
    return f"{value} is not possible here", f"see what the option takes{_meaning(field)}"


def _choice(value: str, given: Any, facts: Mapping[str, Any], field: FieldInfo | None) -> Said:
    known = [text.strip("'\"") for text in facts["expected"].replace(" or ", ", ").split(", ")]
    return choice(value, given, known, _meaning(field))


def choice(value: str, given: Any, known: list[str], meaning: str = "") -> Said:
    """A value that is none of those known."""
    meant = closest(given, known) if isinstance(given, str) else None
    remedy = f"did you mean `{meant}`?" if meant else f"use one of these{meaning}"
    return f"{value} is not one of {one_of(known)}", remedy


def _plain(what: str, remedy: str, *, where: Callable[[Any], bool] = lambda _: False, instead: str = "") -> Phrase:
    """`{}` is the value in `what`, the option's meaning in `remedy`; `where`: values for which it is another one."""
    return lambda value, given, _facts, field: (
        what.format(value),
        instead if where(given) else remedy.format(_meaning(field)),
    )


def _is_scalar(given: Any) -> bool:
    return isinstance(given, (str, int, float, bool))


def _is_whole(given: Any) -> bool:
    return isinstance(given, str) and given.replace("_", "").strip().isdigit()


def _bound(relation: str) -> Phrase:
    def words(value: str, _given: Any, facts: Mapping[str, Any], _field: FieldInfo | None) -> Said:
        limit = next(facts[name] for name in ("gt", "ge", "lt", "le") if name in facts)
        shown = int(limit) if isinstance(limit, float) and limit.is_integer() else limit
        large = relation.startswith(("less", "at most"))
        return f"{value} is too {'large' if large else 'small'}", f"write a number that is {relation} {shown}"

    return words


def _empty(_value: str, given: Any, facts: Mapping[str, Any], field: FieldInfo | None) -> Said:
    least = facts["min_length"]
    if not given:
        return "it is empty", f"name at least {least}{_meaning(field)}"
    return f"{len(given)} are too few", f"name at least {least}{_meaning(field)}"


def _too_many(_value: str, given: Any, facts: Mapping[str, Any], _field: FieldInfo | None) -> Said:
    return f"{len(given)} are too many", f"name at most {facts['max_length']}"


def _form(value: str, _given: Any, facts: Mapping[str, Any], field: FieldInfo | None) -> Said:
    examples = (field.examples if field else None) or []
    if examples:
        return f"{value} does not have the right form", f"write it like `{examples[0]}`{_meaning(field)}"
    return f"{value} does not have the right form", f"it has to match {facts['pattern']}{_meaning(field)}"


_FAMILIES: dict[str, Phrase] = {
    "missing": _plain("it is missing", "add it{}"),
    "literal_error enum": _choice,
    "int_type int_parsing int_from_float int_parsing_size": _plain(
        "{} is not a whole number", "write a whole number{}", where=_is_whole, instead="write it without quotes"
    ),
    "float_type float_parsing finite_number": _plain("{} is not a number", "write one{}"),
    "bool_type bool_parsing": _plain("{} is neither true nor false", "write one of these{}"),
    "string_type string_unicode secret_type": _plain(
        "{} is not text", "write text{}", where=_is_scalar, instead="put it in quotes"
    ),
    "list_type set_type tuple_type": _plain(
        "{} is not a list", "write one{}", where=_is_scalar, instead="write it in [brackets]"
    ),
    "dict_type mapping_type model_type model_attributes_type dataclass_type": _plain(
        "{} is not a map (lines of `name: value`)", "write one{}"
    ),
    "greater_than": _bound("more than"),
    "greater_than_equal": _bound("at least"),
    "less_than": _bound("less than"),
    "less_than_equal": _bound("at most"),
    "too_short string_too_short": _empty,
    "too_long string_too_long": _too_many,
    "string_pattern_mismatch": _form,
    "datetime_type datetime_parsing datetime_from_date_parsing datetime_object_invalid": _plain(
        "{} is not a time", "write it like `2026-01-31T12:00:00Z`"
    ),
}


def _meaning(field: FieldInfo | None) -> str:
    return f" ({field.description})" if field and field.description else ""
