"""Translates transforms of the record's key (`…$Key`) to options of `source.key`.

After ValueToKey the key consists of columns of the value: then they change `changes.key`.
"""

from __future__ import annotations

from jobs.connect_import.chain import Chain
from jobs.connect_import.configured import ConfiguredTransform
from jobs.connect_import.steps import items, renames_of


def key_step(chain: Chain, transform: ConfiguredTransform) -> str:
    """Translates the transform; returns a text for the report."""
    options = transform.options
    field = options.get("field", "")
    if transform.kind == "ExtractField" and transform.predicate is None:
        if chain.key is None:
            chain.key_field = _of_record(chain, field)
        elif field in chain.key:
            chain.key = [field]
        return "changes.key" if chain.key else "source.key: one field of it is the key"
    plain = transform.kind == "ReplaceField" and transform.predicate is None and chain.key is None
    renames = renames_of(options) if plain else {}
    for old, new in renames.items():
        chain.key_names[_of_record(chain, old)] = new
    if not plain or items(options, "include", "whitelist", "exclude", "blacklist"):
        chain.key_todo.append(f"{transform.name}: {transform.kind} changes the record's key: declare in "
                              "source.key.columns which fields it has, as records have them")  # fmt: skip
    return "source.key.rename" if renames else "see below, if the file reads the record's key"


def _of_record(chain: Chain, name: str) -> str:
    """The field of the record's key that now has this name."""
    return next((field for field, now in chain.key_names.items() if now == name), name)


def key_columns(chain: Chain, given: dict[str, str], whole: str) -> dict[str, str]:
    """The columns of the record's key, with their names after the transforms.

    Args:
        given: with the names in records or tables; empty if unknown.
        whole: the column with the whole key, if any.
    """
    if chain.key and whole and whole not in chain.key:
        chain.key_todo.append(f"{whole}: the sink's column of the key, made of {', '.join(chain.key)}, gets no values; "
                              "make it in source.transform if the table needs it")  # fmt: skip
    named = {chain.key_names.get(column, column): kind for column, kind in given.items()}
    if chain.key_field is None:
        return named
    now = chain.key_names.get(chain.key_field, chain.key_field)
    column = whole or now
    if (kind := named.get(column) or named.get(now)) is None:
        kind = "string"
        chain.key_todo.append(f"source.key.columns.{column}: string stands in its place: declare the type that it has")
    chain.key_names = {chain.key_field: column}
    return {column: kind}


def rename(chain: Chain, key: dict[str, object]) -> list[str]:
    """Adds `source.key.rename`; returns what a person has to check.

    Args:
        key: the `source.key` part.
    """
    columns = key.get("columns", {})
    assert isinstance(columns, dict)
    renames = {field: now for field, now in chain.key_names.items() if field != now and (not columns or now in columns)}
    if renames and "column" in key:
        return [f"source.key.column: {key['column']} has the key's fields by the names of the records; transforms had "
                f"renamed {', '.join(renames)}"]  # fmt: skip
    if renames:
        key["rename"] = renames
    return []
