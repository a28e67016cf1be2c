"""Resolves the schema of a record to a reader's schema (Avro's specification 1.12, "Schema Resolution").

Fields, unions and promoted numbers are as the reader's schema has them, with its aliases and defaults. What a value
means (a decimal's scale, a timestamp's unit) is what the schema says by which it was written, as without a reader.
Inside a record that contains itself, which only a column of text can hold, names stay as they were written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jobs.decode.base import Refused
from jobs.decode.branches import branch_signs
from jobs.decode.convert import Unrepresentable
from jobs.decode.scalars import as_it_is
from jobs.schema.wire import Wire

Change = Callable[[Any], Any]
ResolvedType = tuple[Wire, Change | None]
"""The resolved type, and a function to its values from those that were written; None: they are the same."""

_PROMOTED: Mapping[tuple[str, str], Change | None] = {
    ("int", "long"): None,
    ("int", "float"): float,
    ("int", "double"): float,
    ("long", "float"): float,
    ("long", "double"): float,
    ("float", "double"): None,
    ("string", "bytes"): str.encode,
    ("bytes", "string"): bytes.decode,
}
_JSON: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "string": (str,),
    "bytes": (str,),
    "array": (list,),
    "map": (dict,),
}
_OF_JSON: Mapping[str, Change] = {"bytes": lambda text: text.encode("latin-1"), "float": float, "double": float}


@dataclass(frozen=True)
class Resolution:
    """Resolves types that were written to those of the reader.

    Attributes:
        written, read: the definitions of the named types of both schemas, as fastavro has parsed them.
    """

    written: Mapping[str, Any]
    read: Mapping[str, Any]

    def of(self, written: Wire, read: Wire, path: str = "") -> ResolvedType:
        """The type and its change; raises Unrepresentable if Avro's rules do not resolve them."""
        found, change = self._of(written, read, path)
        return replace(found, nullable=written.nullable or read.nullable), change

    def _of(self, written: Wire, read: Wire, path: str) -> ResolvedType:
        if written.kind == "null":
            return read.optional(), None
        if "union" in (written.kind, read.kind):
            return self._union(written, read, path)
        if written.kind != read.kind:
            return _promoted(written, read)
        if written.kind == "record":
            return self._record(written, read, path)
        if written.kind in ("array", "map"):
            item, change = self.of(written.items[-1], read.items[-1], path)
            return replace(written, items=(*written.items[:-1], item)), _EACH[written.kind](change) if change else None
        return written, self._enum(written, read)

    def _enum(self, written: Wire, read: Wire) -> Change | None:
        """The reader's default for symbols that it does not have; None for other types, such as Debezium's enums."""
        symbols, definition = self.written.get(written.name, {}).get("symbols", ()), self.read.get(read.name, {})
        known, default = set(definition.get("symbols", ())), definition.get("default")
        if not symbols or not known or default is None or known >= set(symbols):
            return None
        return lambda symbol: symbol if symbol in known else default

    def _record(self, written: Wire, read: Wire, path: str) -> ResolvedType:
        if _short(written.name) not in self._names(read):
            raise Unrepresentable(f"{_where(path)}: the record's schema has {written.name}, the reader's {read.name}")
        known, own, fields = dict(written.fields), dict(read.fields), list[tuple[str, Wire]]()
        taken: list[tuple[str, str, Change | None]] = []
        defaults: dict[str, Any] = {}
        for (name, inner), definition in zip(read.fields, self.read[read.name]["fields"], strict=True):
            inner_path = f"{path}.{name}" if path else name
            aliases = (alias for alias in definition.get("aliases", ()) if alias not in own)
            source = next((one for one in (name, *aliases) if one in known), None)
            if source is not None:
                found, change = self.of(known[source], inner, inner_path)
                taken.append((name, source, change))
            elif "default" in definition:
                found, defaults[name] = inner, self._default(inner, definition["default"])
            else:
                raise Unrepresentable(
                    f"{_where(inner_path)}: not in the record's schema, and the reader's has no default"
                )
            fields.append((name, found))
        same = not defaults and len(taken) == len(known) and all(a == b and not change for a, b, change in taken)
        return replace(written, fields=tuple(fields)), None if same else _fields(taken, defaults)

    def _union(self, written: Wire, read: Wire, path: str) -> ResolvedType:
        """Values get the form that `convert` expects of the resolved union, which has the reader's branches."""
        targets, tagged = dict(_branches(read)), branch_signs(read) if read.kind == "union" else []
        signs = branch_signs(written) if written.kind == "union" else [""]
        found: dict[str, Wire] = {}
        changes: dict[object, tuple[str, Change | None]] = {}  # by the sign: the branch's name in values, the change
        same = True
        for (name, branch), sign in zip(_branches(written), signs, strict=True):
            target = self._target(name, branch, targets)
            own: tuple[str, Change | None] = ("", _refusing(f"{_where(path)}: the reader's schema has no {name}"))
            if target is not None:
                wire, change = self.of(branch, targets[target], path)
                own = (targets[target].name if target in tagged else "", change)
                if found.setdefault(target, wire) != wire:
                    raise Unrepresentable(f"{_where(path)}: a {written} cannot be resolved to the reader's {read}")
            if changes.setdefault(sign, own) != own:
                raise Unrepresentable(
                    f"{_where(path)}: the branches of a {written} cannot be distinguished by their values"
                )
            same = same and target == name and own[1] is None and bool(own[0]) == (sign == name)
        fields = tuple((name, found.get(name, branch)) for name, branch in read.fields)
        resolved = replace(read, fields=fields) if read.kind == "union" else next(iter(found.values()), read)
        return resolved, None if same else _of_branches(changes, written.kind == "union")

    def _target(self, name: str, branch: Wire, targets: Mapping[str, Wire]) -> str | None:
        """The reader's branch for a branch that was written."""
        by_name = (known for known, wire in targets.items() if name == known or name in self._names(wire))
        wider = (
            known
            for known, wire in targets.items()
            if (branch.kind, wire.kind) in _PROMOTED and not branch.name and not wire.name
        )
        return next(by_name, None) or next(wider, None)

    def _names(self, wire: Wire) -> set[str]:
        """The names, without namespace, that a named type of the reader has or had."""
        if not wire.name:
            return set()
        return {_short(name) for name in (wire.name, *self.read[wire.name].get("aliases", ()))}

    def _default(self, wire: Wire, value: Any) -> Any:
        """A default of the reader's schema, which is JSON, as a record with this value is parsed."""
        if value is None:
            return None
        if wire.kind == "array":
            return [self._default(wire.items[0], one) for one in value]
        if wire.kind == "map":
            return {name: self._default(wire.items[1], one) for name, one in value.items()}
        if wire.kind == "record":
            value = {field["name"]: field.get("default") for field in self.read[wire.name]["fields"]} | value
            return {name: self._default(inner, value[name]) for name, inner in wire.fields}
        if wire.kind == "union":
            name, branch = next(one for one in wire.fields if _fits(one[1], value))
            inner = self._default(branch, value)
            return (branch.name, inner) if name in branch_signs(wire) else inner
        return _OF_JSON.get(wire.kind, as_it_is)(value)


def _fits(wire: Wire, default: Any) -> bool:
    if wire.kind == "record":
        return type(default) is dict and default.keys() <= dict(wire.fields).keys()
    return type(default) in _JSON.get(wire.kind, ())


def _branches(wire: Wire) -> tuple[tuple[str, Wire], ...]:
    return wire.fields if wire.kind == "union" else ((_short(wire.name) or wire.kind, wire),)


def _promoted(written: Wire, read: Wire) -> ResolvedType:
    if written.logical or read.logical or (written.kind, read.kind) not in _PROMOTED:
        return written, None  # the column says whether it can hold what was written
    return read, _PROMOTED[written.kind, read.kind]


def _fields(taken: list[tuple[str, str, Change | None]], defaults: dict[str, Any]) -> Change:
    work = [(name, source, change or as_it_is) for name, source, change in taken]

    def change_all(value: Any) -> Any:
        return {name: _changed(change, value[source]) for name, source, change in work} | defaults

    return change_all


def _of_branches(changes: Mapping[object, tuple[str, Change | None]], union: bool) -> Change:
    def change(value: Any) -> Any:
        sign: object = type(value) if union else ""
        if type(value) is tuple:
            sign, value = _short(value[0]), value[1]
        tag, inner = changes.get(sign, ("", None))
        value = value if inner is None else inner(value)
        return (tag, value) if tag else value

    return change


def _refusing(message: str) -> Change:
    def refuse(_value: Any) -> Any:
        raise Refused("schema", message)

    return refuse


def _changed(change: Change, value: Any) -> Any:
    return None if value is None else change(value)


_EACH: Mapping[str, Callable[[Change], Change]] = {
    "array": lambda change: lambda value: [_changed(change, one) for one in value],
    "map": lambda change: lambda value: {name: _changed(change, one) for name, one in value.items()},
}


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _where(path: str) -> str:
    return f"column {path}" if path else "the record"
