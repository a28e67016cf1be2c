"""Which type was meant by a name that is none: one of another system, or a slip. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from resources.config_files.mistakes import closest

# `bigint` and `text` are names of types here, too.
_ELSEWHERE = {
    **dict.fromkeys(("integer", "smallint", "tinyint", "short", "int4", "int32"), "int"),
    **dict.fromkeys(("int8", "int64"), "long"),
    **dict.fromkeys(("real", "float4", "float32"), "float"),
    **dict.fromkeys(("float8", "float64"), "double"),
    **dict.fromkeys(("numeric", "decimal128"), "decimal(p,s)"),
    "bool": "boolean",
    **dict.fromkeys(("varchar", "nvarchar", "char", "character", "str"), "string"),
    **dict.fromkeys(("json", "jsonb", "variant"), "text"),
    **dict.fromkeys(("bytes", "bytea", "blob", "varbinary"), "binary"),
    "timestamptz": "timestamp",
    "datetime": "timestamp_ntz",
    **dict.fromkeys(("list", "repeated"), "array<T>"),
    **dict.fromkeys(("row", "record"), "struct<name: T, ...>"),
}
# Names of several words begin like a type of ours.
_PHRASES = {
    "double precision": "double",
    "timestamp with time zone": "timestamp",
    "timestamp without time zone": "timestamp_ntz",
    "time without time zone": "time",
}
_WITH_PARTS = {"decimal": "decimal(p,s)", "fixed": "fixed(n)", "array": "array<T>", "map": "map<K,V>"}


def meant_phrase(text: str) -> str:
    """A remedy that names the type; empty: the text begins with no such name."""
    words = " ".join(text.lower().split())
    meant = next((kind for phrase, kind in _PHRASES.items() if words.startswith(phrase)), "")
    return f"did you mean `{meant}`?" if meant else ""


def meant_type(name: str, scalars: Iterable[str]) -> str:
    """A remedy that names the type; empty: nobody knows which one was meant."""
    meant = _ELSEWHERE.get(name) or closest(name, (*scalars, *_WITH_PARTS))
    return f"did you mean `{_WITH_PARTS.get(meant, meant)}`?" if meant else ""
