"""Protobuf descriptors as wire types, and `.proto` texts compiled to descriptors.

Fields have the names of the `.proto` file. Well-known types: Timestamp is an instant, wrappers are nullable values,
Struct and its parts are JSON, Duration and Any are read as messages. Dates, times of day and decimals are messages in
which Confluent's ProtobufConverter writes Connect's types.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError as ProtobufError

from jobs.schema.wire import Wire
from resources.errors import ConfigurationError

_SCALARS = {
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_INT32: "int",
    FieldDescriptor.TYPE_SINT32: "int",
    FieldDescriptor.TYPE_SFIXED32: "int",
    FieldDescriptor.TYPE_UINT32: "long",
    FieldDescriptor.TYPE_FIXED32: "long",
    FieldDescriptor.TYPE_INT64: "long",
    FieldDescriptor.TYPE_SINT64: "long",
    FieldDescriptor.TYPE_SFIXED64: "long",
    FieldDescriptor.TYPE_UINT64: "ulong",
    FieldDescriptor.TYPE_FIXED64: "ulong",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
}
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_MOST_SAID = 500
# The most messages that are expanded: messages that contain each other are expanded wherever they occur, which may be
# millions of times.
_MOST_MESSAGES = 10_000
TIMESTAMP = "google.protobuf.Timestamp"
JSON = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
# Records that are one value.
_LOGICAL = {
    "google.type.Date": "date-parts",
    "google.type.TimeOfDay": "time-parts",
    "confluent.type.Decimal": "variable-decimal",
}
# Files that schemas import without a reference in the registry, since its clients contain them. Source: Confluent's
# documentation, "Protobuf Schema Serializer", and the descriptors in confluent-kafka.
_META = """syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4; }
message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
_DECIMAL = """syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
"""
_KNOWN = {"confluent/meta.proto": _META, "confluent/type/decimal.proto": _DECIMAL}


class Messages:
    """The messages of one descriptor set."""

    def __init__(self, descriptors: bytes) -> None:
        """Raises ConfigurationError for bytes that are not a complete file descriptor set."""
        try:
            found = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
            self._pool = descriptor_pool.DescriptorPool()
            for file in found.file:
                self._pool.Add(file)
            self.files: list[FileDescriptor] = [self._pool.FindFileByName(file.name) for file in found.file]
        except (ProtobufError, TypeError, KeyError) as problem:
            raise ConfigurationError(
                f"not a complete Protobuf descriptor set: {problem}",
                remedy="make it with `protoc --include_imports --descriptor_set_out=FILE`",
            ) from None

    def named(self, name: str) -> Descriptor:
        """The message of this full name.

        Raises:
            ConfigurationError: there is no such message.
        """
        try:
            return self._pool.FindMessageTypeByName(name)
        except KeyError:
            known = sorted(message.full_name for file in self.files for message in file.message_types_by_name.values())
            raise ConfigurationError(
                f"there is no Protobuf message {name!r} (known: {', '.join(known)})", remedy="name a known message"
            ) from None

    def at(self, index: Sequence[int] | int) -> Descriptor:
        """The message of the last file that Confluent's indexes point to, outermost first; or, as AWS Glue numbers
        them, the one with this number among all of the file in the order of full names. Raises KeyError, IndexError."""
        if isinstance(index, int):
            return sorted(_all_messages(self.files[-1].message_types_by_name.values()), key=_full_name)[index]
        file = descriptor_pb2.FileDescriptorProto()
        self.files[-1].CopyToProto(file)
        name, messages = file.package, file.message_type
        for one in index:
            if not 0 <= one < len(messages):
                raise KeyError(f"message index {one}")
            name, messages = f"{name}.{messages[one].name}".lstrip("."), messages[one].nested_type
        return self._pool.FindMessageTypeByName(name)


def _all_messages(messages: Iterable[Descriptor]) -> Iterator[Descriptor]:
    for message in messages:
        yield message
        yield from _all_messages(message.nested_types)


def _full_name(message: Descriptor) -> str:
    return str(message.full_name)


def message_class(message: Descriptor) -> Any:
    return message_factory.GetMessageClass(message)


def message_wire(message: Descriptor) -> Wire:
    """The wire type of a message.

    Raises:
        ConfigurationError: messages contain each other in too many ways to be expanded.
    """
    return _Reader(message).wire(message, ())


class _Reader:
    def __init__(self, root: Descriptor) -> None:
        self._root, self._left = root.full_name, _MOST_MESSAGES

    def wire(self, message: Descriptor, above: tuple[str, ...]) -> Wire:
        if message.full_name in above:
            return Wire("recursive record", name=message.full_name)
        self._left -= 1
        if self._left < 0:
            raise ConfigurationError(
                f"{self._root} holds more than {_MOST_MESSAGES} messages in each other, all ways counted",
                remedy="send a message whose messages contain each other in fewer ways",
            )
        inside = (*above, message.full_name)
        fields = tuple((field.name, self._field(field, inside)) for field in message.fields)
        return Wire("record", fields=fields, name=message.full_name)

    def _field(self, field: FieldDescriptor, above: tuple[str, ...]) -> Wire:
        """The wire type of a field; nullable if Protobuf tracks whether it was set."""
        if field.is_repeated:
            entry = field.message_type
            if entry is not None and entry.GetOptions().map_entry:
                key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
                return Wire("map", items=(self._single(key, above), self._single(value, above)))
            return Wire("array", items=(self._single(field, above),))
        found = self._single(field, above)
        return found.optional() if field.has_presence else found

    def _single(self, field: FieldDescriptor, above: tuple[str, ...]) -> Wire:
        message = field.message_type
        if message is None:
            return Wire("string", "enum") if field.type == FieldDescriptor.TYPE_ENUM else Wire(_SCALARS[field.type])
        if message.full_name == TIMESTAMP:
            return Wire("long", "timestamp-ns")
        if message.full_name in JSON:
            return Wire("string", "json")
        if message.full_name in WRAPPERS:
            return self._single(message.fields_by_name["value"], above).optional()
        return replace(self.wire(message, above), logical=_LOGICAL.get(message.full_name, ""))


@lru_cache(64)
def compiled(texts: tuple[str, ...], names: tuple[str, ...]) -> bytes:
    """The file descriptor set of `.proto` texts: imported ones first, by their import names.

    Raises:
        ConfigurationError: the compiler does not accept them.
    """
    from grpc_tools import protoc

    own = "schema.proto"
    while own in names:
        own = f"_{own}"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, text in {**_KNOWN, **dict(zip((name or own for name in names), texts, strict=True))}.items():
            file = (root / path).resolve()
            if not file.is_relative_to(root.resolve()):
                raise ConfigurationError(f"a Protobuf import leaves its folder: {path}", remedy="correct the import")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        output = root / "descriptors"
        included = [f"-I{path}" for path in (root, *_folders())]
        arguments = [*included, "--include_imports", f"--descriptor_set_out={output}", str(root / own)]
        if protoc.main(["protoc", *arguments]) != 0:
            what = f"the Protobuf compiler does not accept the schema: {_reason(arguments).replace(f'{root}/', '')}"
            raise ConfigurationError(what, remedy="correct the schema, and register what it imports as its references")
        return output.read_bytes()


def _folders() -> list[Path]:
    """The folders with Google's files by their import paths: the well-known types, and the common ones."""
    return [Path(str(files("grpc_tools") / "_proto")), Path(str(files("google.type") / "date.proto")).parents[2]]


def _reason(arguments: list[str]) -> str:
    """The compiler's error message, which it only writes to stderr: so it is run again in a process of its own."""
    said = subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], capture_output=True, check=False)
    lines = said.stderr.decode(errors="replace").splitlines()
    return "; ".join(line.strip() for line in lines if line.strip())[:_MOST_SAID] or "it says nothing"
