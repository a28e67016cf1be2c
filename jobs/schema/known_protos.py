"""Protobuf files that schemas import without a reference in the registry, since its clients contain them.

Source: Confluent's documentation, "Protobuf Schema Serializer", and the descriptors in confluent-kafka. Google's common
types are in `googleapis-common-protos`, the well-known ones in `grpcio-tools`.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

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
TEXTS = {"confluent/meta.proto": _META, "confluent/type/decimal.proto": _DECIMAL}


def folders() -> list[Path]:
    """The folders with Google's files, by their import paths."""
    return [Path(str(files("grpc_tools") / "_proto")), Path(str(files("google.type") / "date.proto")).parents[2]]
