"""Types as people name them (`numeric(10,2)`), in the server's spelling (`Decimal(10, 2)`). Pure."""

from __future__ import annotations

import re

# Names that the server takes in any case (26.9: system.data_type_families).
_SPELLINGS = {
    "Bool": "BOOL BOOLEAN",
    "Date": "DATE",
    "Date32": "DATE32",
    "DateTime": "DATETIME DATETIME32 TIMESTAMP",
    "DateTime64": "DATETIME64",
    "Decimal": "DECIMAL DEC FIXED NUMERIC",
    "Decimal32": "DECIMAL32",
    "Decimal64": "DECIMAL64",
    "Decimal128": "DECIMAL128",
    "Decimal256": "DECIMAL256",
    "Enum": "ENUM",
    "FixedString": "BINARY",
    "Float32": "FLOAT REAL SINGLE",
    "Float64": "DOUBLE DOUBLE_PRECISION",
    "IPv4": "INET4",
    "IPv6": "INET6",
    "Int8": "TINYINT INT1 BYTE TINYINT_SIGNED INT1_SIGNED",
    "Int16": "SMALLINT SMALLINT_SIGNED",
    "Int32": "INT INTEGER MEDIUMINT INT_SIGNED INTEGER_SIGNED MEDIUMINT_SIGNED",
    "Int64": "BIGINT SIGNED BIGINT_SIGNED",
    "UInt8": "TINYINT_UNSIGNED INT1_UNSIGNED",
    "UInt16": "SMALLINT_UNSIGNED YEAR",
    "UInt32": "INT_UNSIGNED INTEGER_UNSIGNED MEDIUMINT_UNSIGNED",
    "UInt64": "BIGINT_UNSIGNED UNSIGNED BIT SET",
    "JSON": "JSON",
    "Time": "TIME",
    "Time64": "TIME64",
}
_OWN = {name.replace("_", " "): own for own, names in _SPELLINGS.items() for name in names.split()}
_TEXT = re.compile(
    r"(NATIONAL )?(CHAR(ACTER)?|NCHAR|BINARY)( LARGE OBJECT| VARYING)|(NATIONAL )?CHAR(ACTER)?|NCHAR|N?VARCHAR|VARCHAR2"
    r"|VARBINARY|BYTEA|CLOB|(TINY|MEDIUM|LONG)?(BLOB|TEXT)"
)
_DIGITS = {"Decimal32": "9", "Decimal64": "18", "Decimal128": "38", "Decimal256": "76"}


def parts(text: str) -> tuple[str, list[str]]:
    """`Map(String, Array(Int8))`: its name and its arguments."""
    name, _, rest = text.strip().partition("(")
    found, depth, quoted = [""], 0, ""
    for sign in rest.removesuffix(")"):
        if sign in "'`" and quoted in ("", sign):
            quoted = "" if quoted else sign
        depth += 0 if quoted else (sign == "(") - (sign == ")")
        if sign == "," and not depth and not quoted:
            found.append("")
        else:
            found[-1] += sign
    return name, [part.strip() for part in found if part.strip()]


def bare(name: str) -> str:
    """The type inside Nullable and LowCardinality, in the server's spelling."""
    outer, arguments = parts(name)
    return bare(arguments[0]) if outer in ("Nullable", "LowCardinality") and arguments else _spelled(outer, arguments)


def holds_null(name: str) -> bool:
    """Whether a column of the type holds null."""
    outer, arguments = parts(name)
    return outer in ("Nullable", "Variant", "Dynamic") or (
        outer == "LowCardinality" and any(map(holds_null, arguments))
    )


def fields(name: str) -> dict[str, str] | None:
    """The named fields of a Tuple or Nested, with their types; None if they have no names."""
    named = [re.fullmatch(r"(`(?:[^`\\]|\\.)+`|\w+)\s+(.+)", argument, re.DOTALL) for argument in parts(name)[1]]
    return {re.sub(r"\\(.)", r"\1", m[1].strip("`")): m[2] for m in named if m} if all(named) else None


def _spelled(outer: str, arguments: list[str]) -> str:
    words = " ".join(outer.upper().split())
    own = "String" if _TEXT.fullmatch(words) else _OWN.get(words, outer.strip())
    if own == "String" or "Int" in own:
        return own
    if own == "DateTime" and arguments and re.fullmatch(r"[1-9]", arguments[0]):
        own = "DateTime64"
    if own in _DIGITS:
        own, arguments = "Decimal", [_DIGITS[own], *arguments]
    if own == "Decimal":
        arguments = [*arguments, *["10", "0"][len(arguments) :]]
    return f"{own}({', '.join(arguments)})" if arguments else own
