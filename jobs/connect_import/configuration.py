"""Reads a connector's configuration from a file: flat JSON, JSON with `name` and `config`, or properties."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from resources.errors import ConfigurationError

# Names of options and of a URL's parameters whose values are secrets, and those of them whose values are none.
SECRET = re.compile(
    r"password|passphrase|pwd|secret|token|credential|keyfile|api[._-]?key|jaas|user\.info|(access|account)[._-]?key|"
    r"\.key$|private[._-]?key|authorization|cookie|connection[._-]string|signature|(^|[._-])sig$",
    re.I,
)
NO_SECRET = re.compile(
    r"token-(refresh|exchange|expires)|refresh-credentials-(endpoint|enabled)|credentials-provider$|credentials\.source$",
    re.I,
)
# User and password of a URL, or a token in their place (without a colon an ABFS URL has its container there).
USER_INFO = re.compile(r"(?<=://)[^/?#@,:]*:[^/?#,]*@|((?<=http://)|(?<=https://))[^/?#@,]+@", re.I)


@dataclass(frozen=True)
class Configuration:
    """A connector's options as text, as Connect has them.

    Attributes:
        name: the connector's name; its consumer group follows from it.
        defaults: of options that are left out.
    """

    name: str
    options: Mapping[str, str]
    defaults: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str, default: str = "") -> str:
        return self.options.get(name, self.defaults.get(name, default)).strip()

    def name_part(self, name: str, default: str = "") -> str:
        """A part of a table's name: `fill_in` in place of a reference that only Connect's worker resolves."""
        return re.sub(r"\$\{\w+:[^}]*\}", "fill_in", self.text(name, default))

    def flag(self, name: str, default: bool = False) -> bool:
        return self.text(name, str(default)).lower() == "true"

    def number(self, name: str) -> int | None:
        """A whole number; None if it is left out, or a reference that only Connect's worker resolves."""
        text = self.text(name)
        return int(text) if re.fullmatch(r"-?\d+", text) else None

    def items(self, name: str, separator: str = ",") -> list[str]:
        return [part.strip() for part in self.text(name).split(separator) if part.strip()]

    def pairs(self, name: str, separator: str) -> dict[str, str]:
        """A list option whose items are pairs; those that are none are left out. The sinks allow spaces around both."""
        pairs = (part.split(separator, 1) for part in self.items(name) if separator in part)
        return {left.strip(): right.strip() for left, right in pairs}

    def below(self, prefix: str) -> dict[str, str]:
        """Options whose names begin with the prefix, by the rest of their names."""
        return {k.removeprefix(prefix): v for k, v in self.options.items() if k.startswith(prefix)}


def read_configuration(path: Path) -> Configuration:
    """Reads a connector's file.

    Raises:
        ConfigurationError: unreadable, or no connector's configuration.
    """
    where = str(path)
    try:
        written = path.read_bytes()
    except OSError as problem:
        raise ConfigurationError(f"cannot be read: {problem.strerror}", where=where, remedy="check the path") from None
    written = written.removeprefix(BOM_UTF8)
    is_json = written.lstrip().startswith(b"{")
    try:
        text = written.decode()
    except UnicodeDecodeError as problem:
        if is_json:
            what = f"it is not UTF-8 at byte {problem.start}"
            raise ConfigurationError(what, where=where, remedy="save it as UTF-8") from None
        text = written.decode("latin-1")  # Java's encoding of properties files
    options = _json(text, where) if is_json else _properties(text)
    if "connector.class" not in options:
        raise ConfigurationError(
            "there is no `connector.class`",
            where=where,
            remedy="give the connector's configuration, as GET /connectors/<name> of Kafka Connect answers it",
        )
    return Configuration(options.get("name", path.stem), options)


def _json(text: str, where: str) -> dict[str, str]:
    try:
        document = json.loads(text)
    except ValueError as problem:
        raise ConfigurationError(f"not JSON: {problem}", where=where, remedy="correct the file") from None
    inner = document.get("config", document)
    if not isinstance(inner, dict):
        raise ConfigurationError("`config` is no object", where=where, remedy="correct the file")
    named = {"name": document["name"]} if "config" in document and "name" in document else {}
    return {k: _text(v) for k, v in {**named, **inner}.items() if v is not None}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _properties(text: str) -> dict[str, str]:
    """Java properties: `key=value` or `key: value`, comments with # and !, lines continued with a backslash."""
    found = {}
    for line in _whole_lines(text):
        if match := re.fullmatch(r"((?:\\.|[^\\=:\s])+)\s*[=:\s]\s*(.*)", line.strip()):
            found[_unescaped(match[1])] = _unescaped(match[2])
    return found


def _whole_lines(text: str) -> Iterator[str]:
    """The lines without comments, each with those that continue it. No line continues a comment."""
    begun = None
    for line in re.split(r"\r\n?|\n", text):  # `splitlines` would also split at other characters
        rest = line.lstrip(" \t\f")
        if begun is None and rest[:1] in ("#", "!"):
            continue
        begun = (begun or "") + rest
        if re.search(r"(?<!\\)(?:\\\\)*\\$", begun):
            begun = begun[:-1]
        else:
            yield begun
            begun = None
    yield begun or ""


def _unescaped(text: str) -> str:
    known = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), text)
    return re.sub(r"\\(.)", lambda m: known.get(m[1], m[1]), text)
