"""What `docs/formats-and-change-data.md` says of values and types is what the decoders do."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from jobs.decode.base import Decoder
from jobs.decode.convert import Unrepresentable, converter
from jobs.decode.json_dialect import JsonDialect
from jobs.decode.json_fast import Json
from jobs.decode.json_strict import StrictJson
from jobs.schema.wire import Wire
from tests.kit.arrow import row_type
from tests.kit.guides import DOCS

PAGE = (DOCS / "formats-and-change-data.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    below = PAGE.split(f"## {heading}\n", maxsplit=1)[1]
    lines = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert lines
    return [[cell.strip() for cell in line.strip("|\n ").split(" |")] for line in lines[0].splitlines()[2:]]


def examples(heading: str) -> list[tuple[str, str, str, str]]:
    """Declared type, JSON value, what is stored, and the error's kind; one of the two is empty."""
    found = []
    for row in table(heading):
        declared = row[0].strip("`")
        accepted = re.findall(r"`([^`]+)` → `([^`]+)`", row[1])
        refused = re.findall(r"`([^`]+)` \((\w+)\)", row[2] if len(row) > 2 else "")
        assert accepted or refused, row
        found += [(declared, value, stored, "") for value, stored in accepted]
        found += [(declared, value, "", kind) for value, kind in refused]
    return found


def shown(value: Any) -> str:
    """A stored value as the page writes it."""
    match value:
        case datetime():
            digits = f".{value.microsecond:06}" if value.microsecond else ""
            return f"{value:%Y-%m-%d %H:%M:%S}{digits}{' UTC' if value.tzinfo else ''}"
        case date() | Decimal():
            return str(value)
        case bytes():
            return "0x" + value.hex()
        case list() if value and isinstance(value[0], tuple):
            return json.dumps(dict(value))
        case _:
            return json.dumps(value)


EXACT = examples("JSON value to declared type")
FITTED = [*((d, v, stored, "") for d, v, stored, kind in EXACT if not kind), *examples("Best fit")]


@pytest.mark.parametrize("decoder", [StrictJson, Json])
@pytest.mark.parametrize(
    ("declared", "value", "stored", "kind", "best_fit"),
    [*((*example, False) for example in EXACT), *((*example, True) for example in FITTED)],
)
def test_json_value(declared: str, value: str, stored: str, kind: str, best_fit: bool, decoder: type[Decoder]) -> None:
    struct = JsonDialect(best_fit=best_fit).of_row(row_type({"c": declared}))
    reader = decoder(struct)  # type: ignore[call-arg]
    decoded = reader.decode(pa.array([f'{{"c": {value}}}'.encode()], pa.binary()))
    if kind:
        assert {n: e.kind for n, e in decoded.errors.items()} == {0: kind}
        return
    assert decoded.errors == {}
    row = decoded.values.to_pylist()[0]
    assert shown(_utc(row["c"])) == stored


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def test_every_declared_type_has_a_row() -> None:
    from jobs.schema import types

    rows = {declared for declared, *_ in EXACT}
    scalars = set(types._SCALARS) - {"bigint"}
    assert scalars <= rows
    assert {name.split("<")[0].split("(")[0] for name in rows} >= {"decimal", "fixed", "array", "map", "struct"}


# A type of a record's schema as the page calls it, to what stands for it.
WIRES = {
    "boolean": Wire("boolean"),
    "int": Wire("int"),
    "long": Wire("long"),
    "ulong": Wire("ulong"),
    "float": Wire("float"),
    "double": Wire("double"),
    "decimal": Wire("bytes", "decimal", 10, 2),
    "number": Wire("string", "number"),
    "string": Wire("string"),
    "bytes": Wire("bytes"),
    "enum": Wire("string", "enum"),
    "uuid": Wire("string", "uuid"),
    "json": Wire("string", "json"),
    "date": Wire("int", "date"),
    "time": Wire("long", "time-us"),
    "timestamp": Wire("long", "timestamp-us"),
}
TEXT = ["string", "number", "enum", "uuid", "json"]


@pytest.mark.parametrize(
    ("declared", "fitting"),
    [
        (name, row[1].split(", "))
        for row in table("Schema types to declared types")
        for name in re.findall(r"`([^`]+)`", row[0])
    ],
)
def test_schema_types(declared: str, fitting: list[str]) -> None:
    row = row_type({"c": declared.replace("(p,s)", "(12,2)").replace("(n)", "(16)")})

    def fits(wire: Wire) -> bool:
        try:
            converter(Wire("record", fields=(("c", wire),)), row)
        except Unrepresentable:
            return False
        return True

    assert sorted(name for name, wire in WIRES.items() if fits(wire)) == sorted(
        name for one in fitting for name in (TEXT if one == "any text" else [one])
    )
